//! Somebody holds the kernel's lock of network devices (RTNL), as any user can who has an answer about `lo` written to a page that he does
//! not supply. Ports of devices wait for it, and nobody else.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ringway_scenes::{Daemon, PATIENCE, frame, receive, ringway, send, until};
use ringway_testing::child::{Ended, thread_states};
use ringway_testing::skip;
use ringway_testing::skip::is_root;

/// The lock is let go after this time at the latest: other programs of the machine need it.
const LONGEST: Duration = Duration::from_secs(2);

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];

/// Calls of userfaultfd(2), as `linux/userfaultfd.h` has them.
mod uapi {
    pub const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
    pub const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
    pub const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
    pub const API: u64 = 0xaa;
    pub const MODE_MISSING: u64 = 1;
    pub const ETHTOOL_GFEATURES: u32 = 0x3a;
}

/// A lock that is held.
struct Holder {
    is_held: Arc<AtomicBool>,
    end: Option<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Holder {
    /// Takes the lock: the kernel writes the features of `lo`, with the lock held, to a page that is not there.
    fn begin() -> Self {
        let page = rustix::param::page_size();
        // SAFETY: a new mapping.
        let memory = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), 2 * page, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(memory, libc::MAP_FAILED);
        let memory = memory as usize;
        // SAFETY: makes a descriptor, which nobody else has.
        let faults = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        let faults = i32::try_from(faults).expect("a descriptor");
        assert!(faults >= 0, "userfaultfd: {}", io::Error::last_os_error());
        // SAFETY: as above.
        let faults = unsafe { OwnedFd::from_raw_fd(faults) };
        request(&faults, uapi::UFFDIO_API, &mut [uapi::API, 0, 0]);
        let missing = (memory + page) as u64;
        request(&faults, uapi::UFFDIO_REGISTER, &mut [missing, page as u64, uapi::MODE_MISSING, 0]);

        // `struct ethtool_gfeatures`: the command and the number of words of features, and then these.
        let command = memory + page - 8;
        // SAFETY: both words are in the first page, and nothing else refers to them.
        unsafe {
            (command as *mut u32).write(uapi::ETHTOOL_GFEATURES);
            (command as *mut u32).add(1).write(2);
        }
        let asking = std::thread::spawn(move || {
            // SAFETY: all zeroes is a valid ifreq.
            let mut about: libc::ifreq = unsafe { std::mem::zeroed() };
            about.ifr_name[0] = b'l'.cast_signed();
            about.ifr_name[1] = b'o'.cast_signed();
            about.ifr_ifru.ifru_data = command as *mut libc::c_char;
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
            // SAFETY: the kernel writes at most two words of features behind the command, in the second page.
            let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut about) };
            assert_eq!(asked, 0, "{}", io::Error::last_os_error());
        });
        // The kernel waits for the page.
        let mut event = [0u8; 32];
        assert_eq!(rustix::io::read(&faults, &mut event).expect("a fault"), 32);
        let is_held = Arc::new(AtomicBool::new(true));
        let (end, may_end) = channel::<()>();
        let held = Arc::clone(&is_held);
        let answering = std::thread::spawn(move || {
            let _ = may_end.recv_timeout(LONGEST);
            held.store(false, Ordering::SeqCst);
            request(&faults, uapi::UFFDIO_ZEROPAGE, &mut [missing, page as u64, 0, 0]);
        });
        Self { is_held, end: Some(end), threads: vec![asking, answering] }
    }

    fn is_held(&self) -> bool {
        self.is_held.load(Ordering::SeqCst)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.end = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Makes a call of userfaultfd(2), whose structure has these words.
fn request<const WORDS: usize>(faults: &OwnedFd, number: libc::c_ulong, words: &mut [u64; WORDS]) {
    // SAFETY: the kernel reads and writes as many bytes as the number says, which the caller has.
    let done = unsafe { libc::ioctl(faults.as_raw_fd(), number as _, words.as_mut_ptr()) };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

/// Runs `ringway ARGS`, without waiting for its end.
fn begin(daemon: &Daemon, args: &[&str]) -> Ended {
    let mut command = ringway();
    command.arg("--runtime-dir").arg(daemon.runtime_dir()).args(args);
    Ended(command.stdout(Stdio::null()).spawn().unwrap())
}

/// Waits until a thread of the daemon waits for the lock. Returns at once when nobody holds it any more.
fn until_waiting(daemon: &Daemon, lock: &Holder) {
    until("the daemon waits for the kernel", || !lock.is_held() || thread_states(daemon.pid()).contains(&'D'));
}

/// Pieces of memory of process ports that the daemon has mapped.
fn mapped(daemon: &Daemon) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).unwrap();
    maps.lines().filter(|line| line.contains("/memfd:")).count()
}

/// The daemon answers everybody, and frames flow.
fn serves(daemon: &Daemon) {
    let _ = daemon.status();
    let [mut a, mut b] = ["lan0:a", "lan0:b"].map(|name| daemon.attach(name).expect("a port"));
    send(&mut a, &frame(B, A, 60));
    assert!(receive(&mut b, PATIENCE).is_some(), "a frame between two other ports");
}

#[test]
fn whoever_holds_the_kernels_lock_of_devices_holds_up_ports_of_devices_alone() {
    if !is_root() {
        skip!("needs root");
    }
    let name = format!("rt{}", std::process::id());
    let add = ["port", "add", &name, "switch=lan0", "kind=tap"];
    let config = "[switch.lan0]\n[attach]\ncreate = \"ports\"\n";
    let daemon = Daemon::start(config);
    let before = mapped(&daemon);

    // Each part has to come to its end while the lock is held. It may take several tries: the lock is held for a short time.
    until("a port is added, and all others are served", || {
        let lock = Holder::begin();
        let mut adding = begin(&daemon, &add);
        until_waiting(&daemon, &lock);
        serves(&daemon);
        let was_held = lock.is_held();
        drop(lock);
        assert_eq!(adding.end().code(), Some(0));
        assert_eq!(daemon.port(&name)["state"], "up");
        daemon.ok(&["port", "del", &name]);
        was_held
    });
    until("a device is closed, and the memory of other ports is given back", || {
        daemon.ok(&add);
        until("former clients' memory is unmapped", || mapped(&daemon) == before);
        let client = daemon.attach("lan0:c").expect("a port");
        assert!(mapped(&daemon) > before);
        let lock = Holder::begin();
        let mut removing = begin(&daemon, &["port", "del", &name]);
        until_waiting(&daemon, &lock);
        drop(client);
        until("its memory is unmapped", || !lock.is_held() || mapped(&daemon) == before);
        serves(&daemon);
        let was_held = lock.is_held();
        drop(lock);
        assert_eq!(removing.end().code(), Some(0));
        was_held
    });
    until("the file is read again, and all others are served", || {
        let lock = Holder::begin();
        daemon.reload(&format!("{config}[port.{name}]\nswitch = \"lan0\"\nkind = \"tap\"\n"));
        until_waiting(&daemon, &lock);
        serves(&daemon);
        let was_held = lock.is_held();
        drop(lock);
        daemon.until_state(&name, "up");
        daemon.reload(config);
        until("the port is gone", || daemon.port(&name).is_null());
        was_held
    });
    until("a new daemon ends while it waits", || {
        let lock = Holder::begin();
        let mut other = Daemon::start(config);
        let _adding = begin(&other, &["port", "add", &format!("{name}b"), "switch=lan0", "kind=tap"]);
        until_waiting(&other, &lock);
        other.signal(rustix::process::Signal::TERM);
        until("its sockets are gone", || !lock.is_held() || !other.socket("control.sock").exists());
        let was_held = lock.is_held();
        drop(lock);
        assert_eq!(other.stop().code(), Some(0));
        was_held
    });
}
