//! System calls: those that the switch and its libraries make after the start. All others are refused.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};

use crate::missing::Missing;

/// What happens to a system call that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It fails with EPERM.
    Error,
    /// It raises SIGSYS, whose handler has it fail so, and counts it. A thread that blocks signals ends the process by it. The same as [`Refusal::Error`] where
    /// there is no such handler, as on other architectures than x86-64 and ARM64.
    Signal,
    /// It ends the process. For tests.
    Kill,
}

/// Calls that are allowed whatever their arguments.
const ALLOWED: &[c_long] = &[
    // Descriptors.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_lseek,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_delete,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    libc::SYS_io_destroy,
    // Files. Which ones there are is Landlock's part.
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_memfd_create,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_brk,
    libc::SYS_membarrier,
    libc::SYS_userfaultfd,
    // Threads, time and signals.
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_getpriority,
    libc::SYS_getcpu,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // The process itself.
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getgroups,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_capget,
    // Peers and children: signals go to processes of this Landlock domain only, so not to closers that the opener has started; and to nobody by number.
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_wait4,
    libc::SYS_waitid,
    // Sockets that are there.
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
];

/// Calls of a process of one thread that reads, computes and writes.
const TO_COMPUTE: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_lseek,
    libc::SYS_ppoll,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_clock_gettime,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getrandom,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Older names of some of them.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[c_long] = &[
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_epoll_wait,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[c_long] = &[];

/// Requests of ioctl(2) that are refused: they write into a terminal's input, choose who gets a signal, or give a TAP device away for good.
const REQUESTS: [u64; 12] = [
    libc::TIOCSTI,
    libc::TIOCLINUX,
    FIOSETOWN,
    SIOCSPGRP,
    libc::FIOASYNC,
    libc::TUNSETIFF,
    libc::TUNSETPERSIST,
    libc::TUNSETOWNER,
    libc::TUNSETGROUP,
    libc::TUNSETLINK,
    libc::TUNSETTXFILTER,
    libc::SIOCSIFHWADDR,
];
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
/// Commands of fcntl(2) that are refused: they choose who gets a signal, or hold up others who open the file.
const COMMANDS: [u64; 5] =
    [libc::F_SETOWN as u64, F_SETOWN_EX, F_SETSIG, libc::F_SETLEASE as u64, libc::F_NOTIFY as u64];
const F_SETSIG: u64 = 10;
const F_SETOWN_EX: u64 = 15;
/// Options of prctl(2) that are refused: the process ends with its keeper, and nobody may debug it.
const OPTIONS: [u64; 3] = [libc::PR_SET_PDEATHSIG as u64, libc::PR_SET_DUMPABLE as u64, libc::PR_SET_PTRACER as u64];
/// The bits of socket(2) that are the type. A datagram needs no connection to go anywhere.
const TYPE: u64 = 0xf;

/// Bits of clone(2) by which a thread would leave a namespace.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// Gives up all other calls, in all threads of the process.
///
/// # Errors
/// The kernel has no seccomp filters.
pub fn give_up_calls(refusal: Refusal) -> Result<(), Missing> {
    let install = || {
        // Its flags are in memory, where a filter does not see them: the library then takes clone(2).
        let no_clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        let clone3 = filter(no_clone3, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?;
        let refused = match refusal {
            Refusal::Signal if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) => SeccompAction::Trap,
            Refusal::Error | Refusal::Signal => SeccompAction::Errno(libc::EPERM as u32),
            Refusal::Kill => SeccompAction::KillProcess,
        };
        let others = filter(allowed()?, refused, SeccompAction::Allow)?;
        apply_filter_all_threads(&clone3)?;
        apply_filter_all_threads(&others)
    };
    install().map_err(|why: seccompiler::Error| format!("the switch may still make all system calls: {why}"))
}

/// Gives up all calls but those of a process of one thread that reads, computes and writes what it has open, opens what [`Files`](crate::Files) leave, and ends.
///
/// # Errors
/// The kernel has no seccomp filters.
pub fn give_up_all_but_computing() -> Result<(), Missing> {
    let install = || {
        let mut rules: BTreeMap<_, _> = TO_COMPUTE.iter().map(|call| (*call, Vec::new())).collect();
        let all = allowed()?;
        let limited = [libc::SYS_openat, libc::SYS_tgkill, libc::SYS_prlimit64];
        rules.extend(all.into_iter().filter(|(call, _)| limited.contains(call)));
        apply_filter_all_threads(&filter(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)?)
    };
    install().map_err(|why: seccompiler::Error| format!("all system calls can still be made: {why}"))
}

fn filter(
    rules: BTreeMap<c_long, Vec<SeccompRule>>,
    others: SeccompAction,
    these: SeccompAction,
) -> Result<BpfProgram, seccompiler::Error> {
    let arch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, others, these, arch)?.try_into()?)
}

fn allowed() -> Result<BTreeMap<c_long, Vec<SeccompRule>>, seccompiler::Error> {
    use SeccompCmpArgLen::{Dword, Qword};
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let rule = |conditions: Vec<SeccompCondition>| SeccompRule::new(conditions);
    let is = |argument, length, op, value| SeccompCondition::new(argument, length, op, value);
    let mut rules: BTreeMap<_, _> =
        ALLOWED.iter().chain(ALLOWED_HERE).chain(&[libc::SYS_clone3]).map(|call| (*call, Vec::new())).collect();
    let own = u64::from(std::process::id());
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![rule(vec![is(0, Qword, MaskedEq(thread | NAMESPACES), thread)?])?]);
    let of_type = |kind: i32| {
        let family = is(0, Dword, Eq, libc::AF_UNIX as u64)?;
        rule(vec![family, is(1, Dword, MaskedEq(TYPE), kind as u64)?])
    };
    let types =
        || Ok::<_, seccompiler::BackendError>(vec![of_type(libc::SOCK_STREAM)?, of_type(libc::SOCK_SEQPACKET)?]);
    rules.insert(libc::SYS_socket, types()?);
    rules.insert(libc::SYS_socketpair, types()?);
    rules.insert(libc::SYS_kill, vec![rule(vec![is(0, Dword, Eq, own)?])?]);
    rules.insert(libc::SYS_tgkill, vec![rule(vec![is(0, Dword, Eq, own)?])?]);
    // Of this process, or of the calling thread: 0 stands for it.
    for (call, number) in [
        (libc::SYS_prlimit64, 0),
        (libc::SYS_sched_setaffinity, 0),
        (libc::SYS_sched_setscheduler, 0),
        (libc::SYS_setpriority, 1),
    ] {
        let own = is(number, Dword, Eq, 0)?;
        let which = is(0, Dword, Eq, libc::PRIO_PROCESS.into())?;
        let all = if call == libc::SYS_setpriority { vec![which, own] } else { vec![own] };
        rules.insert(call, vec![rule(all)?]);
    }
    // A folder without a right to read it: who has that may be in a container, and walk out of it.
    let is_opened = |flags: u8| rule(vec![is(flags, Dword, MaskedEq(libc::O_PATH as u64), 0)?]);
    rules.insert(libc::SYS_openat, vec![is_opened(2)?]);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, vec![is_opened(1)?]);
    // To the socket's peer, and nobody else.
    rules.insert(libc::SYS_sendto, vec![rule(vec![is(4, Qword, Eq, 0)?])?]);
    let none_of = |argument: u8, values: &[u64]| {
        rule(values.iter().map(|value| is(argument, Dword, Ne, *value)).collect::<Result<_, _>>()?)
    };
    rules.insert(libc::SYS_ioctl, vec![none_of(1, &REQUESTS)?]);
    rules.insert(libc::SYS_fcntl, vec![none_of(1, &COMMANDS)?]);
    rules.insert(libc::SYS_prctl, vec![none_of(0, &OPTIONS)?]);
    Ok(rules)
}
