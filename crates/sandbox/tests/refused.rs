//! A process that has given up everything tries to get something back. It is this program, started once more.

use std::io;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use ringway_sandbox::{Files, Refusal, give_up_calls, give_up_files, give_up_privileges};

/// The variable by which the program knows that it is the process.
const INSIDE: &str = "RINGWAY_SANDBOX_TEST";

/// Attempts by name: each returns what the kernel says.
fn attempts() -> Vec<(&'static str, io::Result<()>)> {
    let done = |result: libc::c_long| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    let namespace = std::fs::File::open("/proc/self/ns/net").map(|file| file.as_raw_fd());
    let mut map = [0_u32; 32];
    // A hash map with keys and values of 4 bytes and one entry.
    map[..4].copy_from_slice(&[1, 4, 4, 1]);
    let path = c"/tmp".as_ptr();
    let argv = [c"/bin/true".as_ptr(), std::ptr::null()];
    // SAFETY: the calls get numbers, terminated strings and the memory of `map`, and are refused.
    unsafe {
        vec![
            ("a file", std::fs::File::open("/etc/shadow").map(drop)),
            ("a list of files", std::fs::read_dir("/root").map(drop)),
            ("a new file", std::fs::File::create("/tmp/ringway-sandbox-test").map(drop)),
            ("a TAP device", std::fs::File::options().read(true).write(true).open("/dev/net/tun").map(drop)),
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

/// What a switch does all the time.
fn work() -> io::Result<()> {
    let (near, far) = std::os::unix::net::UnixStream::pair()?;
    let thread = std::thread::Builder::new().spawn(move || drop(far))?;
    thread.join().map_err(|_| io::ErrorKind::Other)?;
    drop(near);
    std::fs::read_to_string("/proc/self/stat").map(drop)
}

fn inside() {
    give_up_privileges().expect("privileges are given up");
    // A machine may have no Landlock, or not all of it: the other stages refuse the same.
    let files = give_up_files(&Files::default());
    give_up_calls(Refusal::Error).expect("system calls are given up");
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("its status");
    for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    work().expect("what a switch does");
    for (what, result) in attempts() {
        let is_file = matches!(what, "a file" | "a list of files" | "a new file" | "a TAP device");
        match result {
            Err(_) => {}
            Ok(()) if is_file && files.is_err() => println!("not refused here, {}: {what}", files.clone().unwrap_err()),
            Ok(()) => panic!("{what} can be had"),
        }
    }
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
