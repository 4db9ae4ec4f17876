//! Calls to eventfds in the states that a hostile client can set.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_setfl};

use super::aio::AioSignaler;
use super::caller::{CALLER, Called, Caller, Mechanism, call, processor_time};
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
    let eventfd = new_eventfd();
    for mut caller in callers() {
        for _ in 0..10_000 {
            assert_eq!(caller.call(eventfd.as_fd()), Called::Done);
        }
        assert_eq!((count(&eventfd), caller.made), (10_000, 10_000));
    }
}

#[test]
fn the_kernel_signals_a_blocking_full_eventfd_without_waiting() {
    let (eventfd, [mut aio, _]) = (new_eventfd(), callers());
    make_full(&eventfd);
    for _ in 0..1000 {
        assert_eq!(aio.call(eventfd.as_fd()), Called::Done);
    }
    assert_eq!(count(&eventfd), u64::MAX, "a write would never get there");
}

#[test]
fn a_write_that_waits_is_interrupted() {
    let (eventfd, [_, mut timed_write]) = (new_eventfd(), callers());
    make_full(&eventfd);
    for _ in 0..3 {
        assert_eq!(timed_write.call(eventfd.as_fd()), Called::Blocked);
    }
    assert_eq!(count(&eventfd), u64::MAX - 1);
    assert_eq!(timed_write.call(eventfd.as_fd()), Called::Done);
}

#[test]
fn a_thread_without_means_to_call_does_not_blame_the_client() {
    let (eventfd, mut caller) = (new_eventfd(), Caller::new(Mechanism::None, processor_time));
    assert_eq!(caller.signal(eventfd.as_fd()), Called::Failed);
    assert_eq!(count(&eventfd), 0);
}

#[test]
fn a_thread_without_means_to_call_asks_the_kernel_again_at_the_next_call() {
    let (eventfd, mut caller) = (new_eventfd(), Caller::new(Mechanism::None, processor_time));
    assert_eq!(caller.call(eventfd.as_fd()), Called::Done);
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
        assert_eq!(call(eventfd.as_fd()), Called::Done);
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
    let (_read, write) = rustix::pipe::pipe().expect("a pipe");
    let [mut aio, _] = callers();
    // 64 KiB and more.
    let called: Vec<_> =
        (0..10_000).map(|_| aio.call(write.as_fd())).take_while(|called| *called == Called::Done).collect();
    assert!(called.len() < 10_000, "the pipe is full at some time, and the write was interrupted");
}

#[test]
fn contexts_of_ended_threads_are_used_again() {
    let eventfd = new_eventfd();
    // More contexts than the system has (fs.aio-max-nr).
    for _ in 0..200 {
        let theirs = eventfd.try_clone().expect("a descriptor");
        let thread = std::thread::spawn(move || {
            let called = call(theirs.as_fd());
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
        let called = (0..10).map(|_| caller.call(eventfd.as_fd()));
        assert_eq!(
            called.filter(|called| *called == Called::Blocked).count(),
            2,
            "three more are measured after the first"
        );
    }
    drop(waiters);
    for mut caller in callers() {
        assert_eq!(caller.call(eventfd.as_fd()), Called::Done);
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

/// Makes ten calls to an eventfd that is measured. Each takes the first of these microseconds; one more to the same eventfd takes the
/// second, and one to an eventfd without waiters the third. Returns how many ended the connection, and the microseconds of those that count
/// as the client's.
fn ten_calls(first: u64, again: u64, usual: u64) -> (usize, u64) {
    let (eventfd, [mechanism, _]) = (new_eventfd(), callers().map(|caller| caller.mechanism));
    let mut caller = Caller::new(mechanism, scripted);
    let place = usize::try_from(eventfd.as_raw_fd()).expect("a descriptor");
    let called = (0..10).filter(|_| {
        if caller.slow_calls.get(place).is_none_or(|slow| *slow == 0) {
            caller.start_measuring(eventfd.as_fd());
        }
        TAKE.set(vec![first, again, usual]);
        caller.call(eventfd.as_fd()) == Called::Blocked
    });
    (called.count(), caller.slow_nanoseconds / 1_000)
}

#[test]
fn a_slow_call_counts_if_one_more_that_wakes_nobody_is_slow_beside_one_to_nobody() {
    // Many waiters.
    assert_eq!(ten_calls(8_000, 8_000, 1), (3, 80_000));
    assert_eq!(ten_calls(5_000, 160, 2).0, 3, "many waiting threads, which the first call woke");
    // The processor of the thread that is woken was taken away; the second call finds it awake.
    assert_eq!(ten_calls(50_000, 2, 1), (0, 0));
    // The caller's own processor is taken away, at any call.
    assert_eq!(ten_calls(10_000, 10_000, 10_000), (0, 0));
    assert_eq!(ten_calls(300, 300, 30), (0, 0), "all calls are slow on this machine");
    assert_eq!(ten_calls(100, 8_000, 1), (0, 0), "a call that is fast is not repeated");
}
