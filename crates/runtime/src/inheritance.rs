//! What the processes get that this one starts.

/// Closes, in each child process, all descriptors that are open now except the standard streams: the program that started this one may have left others
/// open. Linux before 5.11 does not close them.
pub fn pass_on_no_descriptors() {
    // SAFETY: it changes a flag of descriptors, which no code reads.
    unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) };
}

/// Holds back signals that end the daemon or have it read its configuration, for the calling thread and the program that it executes in its place: who
/// comes after execve(2) gets them.
pub fn hold_back_signals() {
    set_signals(libc::SIG_BLOCK);
}

/// Lets them through.
pub fn let_signals_through() {
    set_signals(libc::SIG_UNBLOCK);
}

fn set_signals(how: libc::c_int) {
    // SAFETY: sigemptyset makes the set before it is read, and a mask of these signals keeps no code from running.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::{Command, Stdio};

    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

    use super::*;

    #[test]
    fn what_was_open_is_not_inherited() {
        let file = std::fs::File::open("/dev/null").expect("a file");
        fcntl_setfd(&file, FdFlags::empty()).expect("a flag");
        let has = |file: &std::fs::File| {
            use std::os::fd::AsRawFd;
            let number = file.as_fd().as_raw_fd();
            let mut test = Command::new("test");
            test.args(["-e", &format!("/proc/self/fd/{number}")]).stdin(Stdio::null());
            test.status().expect("test is installed").success()
        };
        assert!(has(&file));
        pass_on_no_descriptors();
        assert!(!has(&file));
        assert_eq!(fcntl_getfd(&file), Ok(FdFlags::CLOEXEC));
    }
}
