//! A program that handles SIGBUS itself, and uses guarded mappings, too.

use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use ringway_memory::Mapping;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

const PAGE: usize = 4096;
const WAS_CALLED: i32 = 40;

/// Runs this very program again with one test, which acts only then: the guard keeps the action that it finds first.
fn in_child(test: &str) -> Option<ExitStatus> {
    if std::env::var_os("RINGWAY_TEST_CHILD").is_some() {
        return None;
    }
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args([test, "--exact"]).env("RINGWAY_TEST_CHILD", "1").stdout(Stdio::null()).stderr(Stdio::null());
    Some(child.status().expect("a child"))
}

fn set_action(action: usize, flags: libc::c_int) {
    // SAFETY: a zeroed structure is valid, and the handlers below only use atomics and system calls.
    unsafe {
        let mut own: libc::sigaction = std::mem::zeroed();
        own.sa_sigaction = action;
        own.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGBUS, &raw const own, ptr::null_mut()), 0);
    }
}

/// A page of the program's own whose file has lost it.
fn lost_page() -> *mut u8 {
    let file = memfd_create("own", MemfdFlags::CLOEXEC).expect("a file");
    ftruncate(&file, PAGE as u64).expect("a size");
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let start = unsafe { libc::mmap(ptr::null_mut(), PAGE, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(start, libc::MAP_FAILED);
    ftruncate(&file, 0).expect("truncated");
    start.cast()
}

/// Reads a lost page.
fn fault(page: *mut u8) -> u8 {
    // SAFETY: the page is mapped; reading it raises SIGBUS.
    unsafe { page.read_volatile() }
}

/// Makes a guarded mapping, which installs the guard, and loses it: the guard's own faults stay the guard's.
fn lose_a_guarded_mapping() {
    let file = memfd_create("guarded", MemfdFlags::CLOEXEC).expect("a file");
    ftruncate(&file, PAGE as u64).expect("a size");
    let mapping = Mapping::shared(std::os::fd::AsFd::as_fd(&file), PAGE).expect("mapped");
    ftruncate(&file, 0).expect("truncated");
    assert_eq!(mapping.whole().first_word(), Some(0));
    assert!(mapping.is_lost());
}

static CALLS: AtomicU32 = AtomicU32::new(0);
static ADDRESS: AtomicUsize = AtomicUsize::new(0);

/// Repairs the page, so that the access succeeds when it is repeated.
extern "C" fn repair(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the kernel's siginfo; the page is this test's own.
    unsafe {
        let address = (*info).si_addr();
        ADDRESS.store(address as usize, Ordering::SeqCst);
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::mmap(address, PAGE, libc::PROT_READ | libc::PROT_WRITE, kind, -1, 0);
    }
}

#[test]
fn a_programs_handler_gets_its_faults_and_the_guard_its_own() {
    if let Some(status) = in_child("a_programs_handler_gets_its_faults_and_the_guard_its_own") {
        assert!(status.success(), "{status}");
        return;
    }
    set_action(repair as *const () as usize, libc::SA_SIGINFO);
    for call in 1..3 {
        lose_a_guarded_mapping();
        let page = lost_page();
        assert_eq!(fault(page), 0);
        assert_eq!((CALLS.load(Ordering::SeqCst), ADDRESS.load(Ordering::SeqCst)), (call, page as usize));
    }
}

extern "C" fn exit(signal: libc::c_int) {
    // SAFETY: async-signal-safe.
    unsafe { libc::_exit(if signal == libc::SIGBUS { WAS_CALLED } else { 1 }) };
}

#[test]
fn a_handler_without_siginfo_is_called_too() {
    if let Some(status) = in_child("a_handler_without_siginfo_is_called_too") {
        assert_eq!(status.code(), Some(WAS_CALLED), "{status}");
        return;
    }
    set_action(exit as *const () as usize, 0);
    lose_a_guarded_mapping();
    fault(lost_page());
}

#[test]
fn a_handler_for_one_signal_is_called_once() {
    if let Some(status) = in_child("a_handler_for_one_signal_is_called_once") {
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
        return;
    }
    set_action(repair as *const () as usize, libc::SA_SIGINFO | libc::SA_RESETHAND);
    lose_a_guarded_mapping();
    fault(lost_page());
    lose_a_guarded_mapping();
    if CALLS.load(Ordering::SeqCst) == 1 {
        fault(lost_page());
    }
}

#[test]
fn a_fault_cannot_be_ignored() {
    if let Some(status) = in_child("a_fault_cannot_be_ignored") {
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
        return;
    }
    set_action(libc::SIG_IGN, 0);
    lose_a_guarded_mapping();
    fault(lost_page());
}

#[test]
fn an_ignored_signal_does_not_end_the_program() {
    if let Some(status) = in_child("an_ignored_signal_does_not_end_the_program") {
        assert!(status.success(), "{status}");
        return;
    }
    set_action(libc::SIG_IGN, 0);
    lose_a_guarded_mapping();
    // SAFETY: sends a signal to this thread alone.
    unsafe { libc::raise(libc::SIGBUS) };
}

#[test]
fn the_default_is_death() {
    if let Some(status) = in_child("the_default_is_death") {
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
        return;
    }
    set_action(libc::SIG_DFL, 0);
    lose_a_guarded_mapping();
    fault(lost_page());
}
