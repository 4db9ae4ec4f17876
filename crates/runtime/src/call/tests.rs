//! Calls to eventfds in the states that a hostile client can set.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_setfl};

use super::account::CallAccount;
use super::aio::AioSignaler;
use super::caller::{CALLER, Called, Caller, Mechanism, call, processor_time, send_counted};
use super::timed_write::TimedWriter;

fn new_eventfd() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

/// Reads and resets its counter.
fn count(eventfd: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(eventfd, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

/// Makes the eventfd blocking and fills its counter: write(2) waits for a reader from now on.
fn make_full(eventfd: &OwnedFd) {
    count(eventfd);
    rustix::io::write(eventfd, &(u64::MAX - 1).to_ne_bytes()).expect("the counter takes this much");
    fcntl_setfl(eventfd, OFlags::empty()).expect("flags");
}

fn callers() -> [Caller; 2] {
    let aio = Mechanism::Aio(AioSignaler::new().expect("this kernel signals eventfds"));
    let timed_write = Mechanism::TimedWrite(TimedWriter::new().expect("a timer"));
    [aio, timed_write].map(|mechanism| Caller::new(mechanism, processor_time))
}

#[test]
fn each_call_adds_one() {
    let account = CallAccount::default();
    let eventfd = new_eventfd();
    for mut caller in callers() {
        for _ in 0..10_000 {
            assert_eq!(caller.call(eventfd.as_fd(), &account), Called::Done);
        }
        assert_eq!(caller.made, 10_000);
        // A call that was slow is repeated.
        assert!(count(&eventfd) >= 10_000);
    }
}

#[test]
fn the_kernel_signals_a_blocking_full_eventfd_without_waiting() {
    let account = CallAccount::default();
    let (eventfd, [mut aio, _]) = (new_eventfd(), callers());
    make_full(&eventfd);
    for _ in 0..1000 {
        assert_eq!(aio.call(eventfd.as_fd(), &account), Called::Done);
    }
    assert_eq!(count(&eventfd), u64::MAX, "a write would never get there");
}

#[test]
fn a_write_that_waits_is_interrupted() {
    let account = CallAccount::default();
    let (eventfd, [_, mut timed_write]) = (new_eventfd(), callers());
    make_full(&eventfd);
    for _ in 0..3 {
        assert_eq!(timed_write.call(eventfd.as_fd(), &account), Called::Blocked);
    }
    assert_eq!(count(&eventfd), u64::MAX - 1);
    assert_eq!(timed_write.call(eventfd.as_fd(), &account), Called::Done);
}

#[test]
fn a_thread_without_means_to_call_does_not_blame_the_client() {
    let (eventfd, mut caller) = (new_eventfd(), Caller::new(Mechanism::None, processor_time));
    assert_eq!(caller.signal(eventfd.as_fd()), Called::Failed);
    assert_eq!(count(&eventfd), 0);
}

#[test]
fn a_thread_without_means_to_call_asks_the_kernel_again_at_the_next_call() {
    let account = CallAccount::default();
    let (eventfd, mut caller) = (new_eventfd(), Caller::new(Mechanism::None, processor_time));
    assert_eq!(caller.call(eventfd.as_fd(), &account), Called::Done);
    assert_eq!(count(&eventfd), 1);
}

#[test]
fn a_client_that_fills_its_eventfd_again_and_again_delays_no_thread() {
    let (eventfd, stop) = (Arc::new(new_eventfd()), Arc::new(AtomicBool::new(false)));
    let (theirs, until) = (Arc::clone(&eventfd), Arc::clone(&stop));
    let client = std::thread::spawn(move || {
        while !until.load(Ordering::Relaxed) {
            let _ = fcntl_setfl(&*theirs, OFlags::NONBLOCK);
            let _ = rustix::io::write(&*theirs, &(u64::MAX - 1).to_ne_bytes());
            let _ = fcntl_setfl(&*theirs, OFlags::empty());
        }
    });
    for _ in 0..20_000 {
        assert_eq!(call(eventfd.as_fd(), &CallAccount::default()), Called::Done);
    }
    stop.store(true, Ordering::Relaxed);
    // The client may be in a write that waits for a reader. No other thread reads, so that a read after poll(2) does not wait.
    while !client.is_finished() {
        let mut fds = [PollFd::new(&*eventfd, PollFlags::IN)];
        if poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
            count(&eventfd);
        }
    }
    client.join().expect("the client");
}

#[test]
fn another_descriptor_than_an_eventfd_is_not_waited_for() {
    let account = CallAccount::default();
    let (_read, write) = rustix::pipe::pipe().expect("a pipe");
    let [mut aio, _] = callers();
    // 64 KiB and more.
    let called: Vec<_> =
        (0..10_000).map(|_| aio.call(write.as_fd(), &account)).take_while(|called| *called == Called::Done).collect();
    assert!(called.len() < 10_000, "the pipe is full at some time, and the write was interrupted");
}

#[test]
fn contexts_of_ended_threads_are_used_again() {
    let eventfd = new_eventfd();
    // More contexts than the system has (fs.aio-max-nr).
    for _ in 0..200 {
        let theirs = eventfd.try_clone().expect("a descriptor");
        let thread = std::thread::spawn(move || {
            let called = call(theirs.as_fd(), &CallAccount::default());
            let by_aio = CALLER.with(|caller| matches!(caller.borrow().mechanism, Mechanism::Aio(_)));
            (called, by_aio)
        });
        assert_eq!(thread.join().expect("a thread"), (Called::Done, true));
    }
    assert_eq!(count(&eventfd), 200);
}

#[test]
fn an_eventfd_with_very_many_waiters_is_not_called_again_and_again() {
    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    let eventfd = new_eventfd();
    let copies: Vec<OwnedFd> = (0..400).map(|_| eventfd.try_clone().expect("a descriptor")).collect();
    let waiters: Vec<OwnedFd> = (0..200).map(|_| epoll::create(CreateFlags::CLOEXEC).expect("an epoll")).collect();
    for waiter in &waiters {
        for copy in &copies {
            epoll::add(waiter, copy, EventData::new_u64(0), EventFlags::IN | EventFlags::ET).expect("a waiter");
        }
    }
    // 80,000 waiters take some milliseconds.
    for mut caller in callers() {
        let account = CallAccount::default();
        let blocked = (0..10).position(|_| caller.call(eventfd.as_fd(), &account) == Called::Blocked);
        assert_eq!(blocked, Some(3), "three more are measured after the first");
    }
    drop(waiters);
    for mut caller in callers() {
        assert_eq!(caller.call(eventfd.as_fd(), &CallAccount::default()), Called::Done);
    }
}

thread_local! {
    /// Processor time, and what the next calls take of it, in microseconds.
    static TIME: Cell<u64> = const { Cell::new(0) };
    static TAKE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Read before and after each call.
fn scripted() -> Duration {
    thread_local!(static IS_AFTER: Cell<bool> = const { Cell::new(false) });
    if IS_AFTER.replace(!IS_AFTER.get()) {
        TIME.set(TIME.get() + TAKE.with_borrow_mut(|take| if take.is_empty() { 0 } else { take.remove(0) }));
    }
    Duration::from_micros(TIME.get())
}

/// Calls an eventfd, the calls to which are measured, at `now`. The call takes the first of these microseconds; each further one to the same
/// eventfd takes the second, and one to an eventfd without waiters the third.
fn call_that_takes(caller: &mut Caller, account: &CallAccount, now: u64, takes: [u64; 3]) -> Called {
    TAKE.set([&takes[..], &[takes[1]; 3]].concat());
    caller.measured(new_eventfd().as_fd(), account, now)
}

/// Ten calls ([`call_that_takes`]). Returns how many say that the client delays them, and the microseconds of those that count as the client's.
fn ten_calls(first: u64, again: u64, usual: u64) -> (usize, u64) {
    let [mechanism, _] = callers().map(|caller| caller.mechanism);
    let (mut caller, account) = (Caller::new(mechanism, scripted), CallAccount::default());
    let mut call = || call_that_takes(&mut caller, &account, 1, [first, again, usual]);
    let called = (0..10).filter(|_| call() == Called::Blocked).count();
    (called, caller.slow_nanoseconds / 1_000)
}

#[test]
fn a_slow_call_counts_if_one_more_that_wakes_nobody_is_slow_beside_one_to_nobody() {
    // Many waiters.
    assert_eq!(ten_calls(8_000, 8_000, 1), (8, 240_000));
    assert_eq!(ten_calls(50_000, 50_000, 1), (8, 1_000_000), "not repeated as often");
    assert_eq!(ten_calls(1_000, 1_000, 1), (8, 50_000));
    assert_eq!(ten_calls(5_000, 160, 2).0, 8, "many waiting threads, which the first call woke");
    // The processor of the thread that is woken was taken away; the second call finds it awake.
    assert_eq!(ten_calls(50_000, 2, 1), (0, 0));
    // The caller's own processor is taken away, at any call.
    assert_eq!(ten_calls(10_000, 10_000, 10_000), (0, 0));
    assert_eq!(ten_calls(300, 300, 30), (0, 0), "all calls are slow on this machine");
    assert_eq!(ten_calls(100, 8_000, 1), (0, 0), "a call that is fast is not repeated");
}

#[test]
fn a_thread_that_sleeps_again_before_the_second_call_is_no_slow_client() {
    // Measured with a load of 14 on two processors, in microseconds: the second call wakes the thread once more, those after it do not.
    for again in [[94, 4, 3, 3], [327, 1, 1, 0], [178, 1, 0, 0], [67, 80, 1, 0], [20, 20, 20, 1]] {
        let [mechanism, _] = callers().map(|caller| caller.mechanism);
        let (mut caller, account) = (Caller::new(mechanism, scripted), CallAccount::default());
        for now in 1..=10 {
            TAKE.set([&[2_971, again[0], 1][..], &again[1..]].concat());
            assert_eq!(caller.measured(new_eventfd().as_fd(), &account, now), Called::Done, "{again:?}");
        }
        assert_eq!(caller.slow_nanoseconds, 0);
    }
}

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

/// Clients that wait for their calls again at once, for a while. Each call takes so many microseconds, and is fast if it is repeated.
/// Returns the part of the time that the calls took, in thousandths.
fn part_of_the_time(takes: u64, clients: usize) -> u64 {
    const BEGIN: u64 = 10 * SECOND;
    const WHOLE: u64 = 90 * SECOND;
    let [mechanism, _] = callers().map(|caller| caller.mechanism);
    let mut caller = Caller::new(mechanism, scripted);
    let accounts: Vec<_> = std::iter::repeat_with(CallAccount::default).take(clients).collect();
    let (mut now, mut taken) = (SECOND, 0);
    while now < BEGIN + WHOLE {
        let next = accounts.iter().min_by_key(|account| account.held_until()).expect("a client");
        now = now.max(next.held_until());
        assert_eq!(
            call_that_takes(&mut caller, next, now, [takes, 1, 1]),
            Called::Done,
            "the machine may be the cause"
        );
        // What is free is used up.
        taken += if now >= BEGIN { takes * 1_000 } else { 0 };
        now += takes * 1_000;
    }
    taken * 1_000 / WHOLE
}

#[test]
fn calls_that_are_slow_once_each_time_take_a_small_part_of_the_time_for_each_client() {
    for clients in [1, 2, 8] {
        for takes in [150, 1_000, 5_000, 30_000] {
            let part = part_of_the_time(takes, clients);
            // What is harmless counts for nobody.
            let most = 10 * clients as u64 * takes / (takes - 20) + clients as u64;
            assert!((8 * clients as u64..=most).contains(&part), "{takes} us, {clients} clients: {part} of 1000");
        }
    }
    assert!((18..=21).contains(&part_of_the_time(80_000, 1)), "the longest hold");
}

#[test]
fn no_client_is_held_for_what_calls_to_others_cost() {
    let [mechanism, _] = callers().map(|caller| caller.mechanism);
    let (mut caller, hostile, honest) =
        (Caller::new(mechanism, scripted), CallAccount::default(), CallAccount::default());
    for n in 1..=1_000 {
        call_that_takes(&mut caller, &hostile, n * MILLISECOND, [5_000, 1, 1]);
        call_that_takes(&mut caller, &honest, n * MILLISECOND, [100, 1, 1]);
    }
    assert!(hostile.held_until() > 4 * SECOND);
    assert_eq!(honest.held_until(), 0);
}

#[test]
fn all_slow_calls_that_a_client_gets_at_once_hold_it() {
    // As many as a port has registrations, each after a look at the clock or after the one before.
    for apart in [0, MILLISECOND] {
        let [mechanism, _] = callers().map(|caller| caller.mechanism);
        let (mut caller, account) = (Caller::new(mechanism, scripted), CallAccount::default());
        account.charge(SECOND, Duration::from_millis(100));
        for n in 0..30 {
            call_that_takes(&mut caller, &account, SECOND + n * apart, [1_000, 1, 1]);
        }
        let held = account.held_until() - SECOND;
        assert!((2_900 * MILLISECOND..3_100 * MILLISECOND).contains(&held), "{held}");
    }
}

/// Numbers that look random, below `below`.
fn numbers(below: u64) -> impl FnMut() -> u64 {
    let mut state = 1u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

#[test]
fn a_client_whose_processor_is_taken_away_now_and_then_is_hardly_ever_held() {
    // 3 % of a thread's time are calls to this client, and a fifth of the time another machine has the processor, in pieces. So each
    // piece is in a call in 3 % of the cases.
    const HOUR: u64 = 3_600 * SECOND;
    for (piece, most) in [(MILLISECOND, 0), (5 * MILLISECOND, 0), (10 * MILLISECOND, 0), (30 * MILLISECOND, HOUR / 40)]
    {
        let (account, mut number, mut held, mut held_before) = (CallAccount::default(), numbers(100), 0, 0);
        for now in (SECOND..HOUR).step_by(5 * piece as usize) {
            if number() < 3 {
                account.charge(now, Duration::from_nanos(piece));
                let until = account.held_until();
                held += until.saturating_sub(now.max(held_before));
                held_before = held_before.max(until);
            }
        }
        assert!(held <= most, "{piece} ns: held for {held} ns");
    }
}

#[test]
fn a_new_client_is_held_for_a_moment_at_most() {
    let account = CallAccount::default();
    (0..100).for_each(|_| account.charge(SECOND, Duration::from_millis(50)));
    assert_eq!(account.held_until(), 5 * SECOND, "the longest hold");
    account.begin_client_at(2 * SECOND);
    assert_eq!(account.held_until(), 2 * SECOND + 100 * MILLISECOND);
    // A client that connects again and again has nothing free each time.
    account.begin_client_at(3 * SECOND);
    account.charge(3 * SECOND, Duration::from_millis(20));
    assert!(account.held_until() > 4 * SECOND);
    account.measure_from(4 * SECOND);
    account.begin_client_at(4 * SECOND);
    assert!(account.is_measured());
}

#[test]
fn slow_calls_of_another_client_count_for_nobody_else() {
    let [mechanism, _] = callers().map(|caller| caller.mechanism);
    let (mut caller, account) = (Caller::new(mechanism, scripted), CallAccount::default());
    // Whatever eventfd each call is to: they may have the same number.
    let slow = [8_000, 8_000, 1];
    assert_eq!([1, 2].map(|now| call_that_takes(&mut caller, &account, now, slow)), [Called::Done; 2]);
    let other = CallAccount::default();
    assert_eq!(call_that_takes(&mut caller, &other, 3, slow), Called::Done);
    account.begin_client();
    assert_eq!([4, 5].map(|now| call_that_takes(&mut caller, &account, now, slow)), [Called::Done; 2]);
    // Some callers ignore it: the next call says so, too.
    assert_eq!([6, 7].map(|now| call_that_takes(&mut caller, &account, now, slow)), [Called::Blocked; 2]);
    account.begin_client();
    assert_eq!(call_that_takes(&mut caller, &account, 8, slow), Called::Done);
}

#[test]
fn slow_calls_that_are_far_apart_are_no_row() {
    let [mechanism, _] = callers().map(|caller| caller.mechanism);
    let (mut caller, account) = (Caller::new(mechanism, scripted), CallAccount::default());
    let mut call = |second, takes| call_that_takes(&mut caller, &account, second * SECOND, takes);
    for second in 1..95 {
        // Measured all the time.
        let takes = if second % 11 == 0 { [8_000, 8_000, 1] } else { [50, 1, 1] };
        assert_eq!(call(second, takes), Called::Done);
    }
    assert_eq!(
        [100, 110, 120].map(|second| call(second, [8_000, 8_000, 1])),
        [Called::Done, Called::Done, Called::Blocked]
    );
}

#[test]
fn calls_are_measured_until_they_were_harmless_for_a_while() {
    let [mechanism, _] = callers().map(|caller| caller.mechanism);
    let (mut caller, account) = (Caller::new(mechanism, scripted), CallAccount::default());
    for n in 0..100 {
        // A hostile client makes every other call slow.
        call_that_takes(&mut caller, &account, n * SECOND + 1, [[5_000, 1, 1], [1, 1, 1]][n as usize % 2]);
        assert!(account.is_measured());
    }
    call_that_takes(&mut caller, &account, 200 * SECOND, [1; 3]);
    assert!(!account.is_measured() && account.held_until() == 0);
}

#[test]
fn what_is_sent_is_counted_by_the_same_system_call_and_so_is_what_a_full_socket_refuses() {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, recv, socketpair};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
    let witness = new_eventfd();
    for round in 1..100u8 {
        send_counted(near.as_fd(), &[round; 40], witness.as_fd()).expect("room");
        let mut bytes = [0; 64];
        assert_eq!(recv(&far, &mut bytes[..], rustix::net::RecvFlags::empty()).map(|(_, count)| count), Ok(40));
        assert_eq!((bytes[39], count(&witness)), (round, 1));
    }
    let refused = (0..10_000).find_map(|_| send_counted(near.as_fd(), &[1; 4096], witness.as_fd()).err());
    assert_eq!(refused.expect("a full socket").kind(), std::io::ErrorKind::WouldBlock);
    count(&witness);
    assert!(send_counted(near.as_fd(), &[1; 4096], witness.as_fd()).is_err());
    assert_eq!(count(&witness), 1);
    drop(far);
    let gone = send_counted(near.as_fd(), &[1], witness.as_fd()).expect_err("nobody reads");
    assert_eq!(gone.kind(), std::io::ErrorKind::BrokenPipe);
}
