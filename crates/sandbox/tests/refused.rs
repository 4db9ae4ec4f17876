//! A process that has given up everything tries to get something back. It is this program, started once more.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use ringway_sandbox::{Files, Refusal, give_up_calls, give_up_files, give_up_privileges};

/// The variable by which the program knows that it is the process.
const INSIDE: &str = "RINGWAY_SANDBOX_TEST";

/// What fails otherwise, too, or would do no harm in this test: the list has to refuse it.
const ONLY_BY_THE_LIST: [&str; 7] = [
    "a datagram to somebody",
    "processors by number",
    "a policy by number",
    "a priority by number",
    "a user's priority",
    "a terminal's input",
    "a file's signals",
];

/// What Landlock refuses, and no list of system calls.
const FILES: [&str; 9] = [
    "a file",
    "a list of files",
    "a new file",
    "a TAP device",
    "the folder of all processes",
    "its own folder there",
    "the root folder by a link there",
    "another process's status",
    "the kernel's symbols",
];

/// Attempts by name: each returns what the kernel says. `datagrams`: a socket that a client has passed.
fn attempts(datagrams: &UnixDatagram) -> Vec<(&'static str, io::Result<()>)> {
    let done = |result: libc::c_long| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    let namespace = std::fs::File::open("/proc/self/ns/net").map(|file| file.as_raw_fd());
    let mut map = [0_u32; 32];
    // A hash map with keys and values of 4 bytes and one entry.
    map[..4].copy_from_slice(&[1, 4, 4, 1]);
    let path = c"/tmp".as_ptr();
    let open = |path: &str| std::fs::File::open(path).map(drop);
    let folder = |path: &std::ffi::CStr| done(open_folder(path).into());
    let status = format!("/proc/{}/status", std::os::unix::process::parent_id());
    // SAFETY: the structure is numbers, and zeroes are an address and a set of processors.
    let (address, processors): (libc::sockaddr_un, libc::cpu_set_t) = unsafe { std::mem::zeroed() };
    // Whatever the number: the kernel itself only protects processes with capabilities.
    let own = rustix::thread::gettid().as_raw_pid();
    let scheduling = libc::sched_param { sched_priority: 0 };
    let argv = [c"/bin/true".as_ptr(), std::ptr::null()];
    // SAFETY: the calls get numbers, terminated strings and the memory of `map`, and are refused.
    unsafe {
        vec![
            ("a file", std::fs::File::open("/etc/shadow").map(drop)),
            ("a list of files", std::fs::read_dir("/root").map(drop)),
            ("a new file", std::fs::File::create("/tmp/ringway-sandbox-test").map(drop)),
            ("a TAP device", std::fs::File::options().read(true).write(true).open("/dev/net/tun").map(drop)),
            ("the folder of all processes", open("/proc")),
            ("its own folder there", open("/proc/self")),
            ("the root folder by a link there", open("/proc/self/root")),
            ("another process's status", open(&status)),
            ("the kernel's symbols", open("/proc/kallsyms")),
            ("a place in the root folder", folder(c"/")),
            ("a place in its own folder", folder(c"/proc/self")),
            #[cfg(target_arch = "x86_64")]
            (
                "a place by the older call",
                done(libc::syscall(libc::SYS_open, c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC, 0)),
            ),
            (
                "a datagram to somebody",
                done(libc::sendto(
                    datagrams.as_raw_fd(),
                    path.cast(),
                    1,
                    0,
                    (&raw const address).cast(),
                    size_of_val(&address) as libc::socklen_t,
                ) as libc::c_long),
            ),
            ("processors by number", done(libc::sched_setaffinity(own, size_of_val(&processors), &processors).into())),
            ("a policy by number", done(libc::sched_setscheduler(own, libc::SCHED_BATCH, &scheduling).into())),
            ("a priority by number", done(libc::setpriority(libc::PRIO_PROCESS, own as libc::id_t, 19).into())),
            ("a user's priority", done(libc::setpriority(libc::PRIO_USER, 54_321, 19).into())),
            ("a terminal's input", done(libc::ioctl(0, libc::TIOCSTI, path).into())),
            ("a file's signals", done(libc::fcntl(datagrams.as_raw_fd(), libc::F_SETOWN, libc::getppid()).into())),
            ("an INET socket", done(libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0).into())),
            ("a netlink socket", done(libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, 0).into())),
            ("a packet socket", done(libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).into())),
            ("a connection", done(libc::syscall(libc::SYS_connect, 0, path, 3))),
            ("a program", done(libc::execv(argv[0], argv.as_ptr()).into())),
            ("a process", done(libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0))),
            ("a process by vfork", done(libc::syscall(libc::SYS_vfork))),
            ("a debugged process", done(libc::ptrace(libc::PTRACE_ATTACH, libc::getppid(), 0, 0))),
            ("another's memory", done(libc::syscall(libc::SYS_process_vm_readv, libc::getppid(), 0, 0, 0, 0, 0))),
            ("a mount", done(libc::mount(path, path, path, libc::MS_BIND, std::ptr::null()).into())),
            ("another namespace", namespace.and_then(|fd| done(libc::setns(fd, 0).into()))),
            ("a user namespace", done(libc::unshare(libc::CLONE_NEWUSER).into())),
            ("a program of the kernel", done(libc::syscall(libc::SYS_bpf, 0, map.as_mut_ptr(), 128))),
            ("a signal to the first process", done(libc::kill(1, 0).into())),
            ("a signal to the parent", done(libc::kill(libc::getppid(), 0).into())),
            ("a file's owner", done(libc::chown(path, 1, 1).into())),
            ("a module", done(libc::syscall(libc::SYS_init_module, 0, 0, 0))),
            ("a ring of system calls", done(libc::syscall(libc::SYS_io_uring_setup, 1, 0))),
            ("a key", done(libc::syscall(libc::SYS_keyctl, 0, 0, 0, 0, 0))),
            ("a clock", done(libc::syscall(libc::SYS_settimeofday, 0, 0))),
            ("a limit of another", done(libc::syscall(libc::SYS_prlimit64, libc::getppid(), 0, 0, 0))),
        ]
    }
}

fn open_folder(path: &std::ffi::CStr) -> libc::c_int {
    // SAFETY: the path is a terminated string.
    unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) }
}

/// What a switch does all the time.
fn work() -> io::Result<()> {
    let (near, far) = std::os::unix::net::UnixStream::pair()?;
    let thread = std::thread::Builder::new().spawn(move || drop(far))?;
    thread.join().map_err(|_| io::ErrorKind::Other)?;
    drop(near);
    let (near, _far) = std::os::unix::net::UnixStream::pair()?;
    rustix::net::send(&near, b"x", rustix::net::SendFlags::empty())?;
    let processors = rustix::thread::sched_getaffinity(None)?;
    rustix::thread::sched_setaffinity(None, &processors)?;
    rustix::process::nice(1)?;
    for file in ["self/stat", "self/maps", "thread-self/schedstat"] {
        std::fs::read_to_string(format!("/proc/{file}"))?;
    }
    Ok(())
}

fn inside() {
    let datagrams = UnixDatagram::unbound().expect("a socket");
    give_up_privileges().expect("privileges are given up");
    // A machine may have no Landlock, or not all of it: the other stages refuse the same.
    let files = give_up_files(&Files::default());
    give_up_calls(Refusal::Error).expect("system calls are given up");
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("its status");
    for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    work().expect("what a switch does");
    let mut had = Vec::new();
    for (what, result) in attempts(&datagrams) {
        let is_file = FILES.contains(&what);
        match result {
            Err(why) if is_file || why.raw_os_error() == Some(libc::EPERM) || !ONLY_BY_THE_LIST.contains(&what) => {}
            Err(why) => had.push(format!("{what} ({why})")),
            Ok(()) if is_file && files.is_err() => println!("not refused here, {}: {what}", files.clone().unwrap_err()),
            Ok(()) => had.push(what.to_owned()),
        }
    }
    assert!(had.is_empty(), "can be had: {had:?}");
    println!("all refused");
}

#[test]
fn a_process_without_anything_gets_nothing_back() {
    if std::env::var_os(INSIDE).is_some() {
        // The test's thread is not the only one: what holds for threads holds for this one.
        return inside();
    }
    let own = std::env::current_exe().expect("this program");
    let name = "a_process_without_anything_gets_nothing_back";
    let mut command = Command::new(own);
    command.args(["--exact", name, "--nocapture"]).env(INSIDE, "1").stdin(Stdio::null());
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("all refused"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
