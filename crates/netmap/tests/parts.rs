//! Parts of the library by themselves: a test program with the whole library would call the library's functions in place of libc's.

#![allow(dead_code, reason = "each part is used in parts")]

#[path = "../src/clock.rs"]
mod clock;
#[path = "../src/errno.rs"]
mod errno;
#[path = "../src/control/headers.rs"]
mod headers;
#[path = "../src/lock.rs"]
mod lock;
#[path = "../src/wait/time.rs"]
mod time;

use time::Limit;

#[test]
fn a_length_of_a_known_port_can_be_changed_where_there_is_no_room_for_another() {
    let name = |number: usize| format!("lan0:p{number}").parse().unwrap();
    let most = (0..).find(|&number| headers::set(&name(number), 10).is_err()).unwrap();
    assert_eq!((most, headers::set(&name(most), 10)), (1024, Err(libc::ENOMEM)));
    assert_eq!(headers::set(&name(7), 12), Ok(()));
    assert_eq!([7, 8, most].map(|number| headers::wanted(&name(number))), [Ok(12), Ok(10), Ok(0)]);
}

#[test]
fn the_rest_of_a_wait_in_milliseconds_is_rounded_up_and_bounded() {
    let left = |nanoseconds| Limit::After(nanoseconds).left_milliseconds();
    assert_eq!([1, 999_999, 1_000_000, 1_000_001, 1_500_000_000].map(left), [1, 1, 1, 2, 1500]);
    assert_eq!([i64::from(i32::MAX) * 1_000_000 + 1, i64::MAX].map(left), [i32::MAX; 2]);
    assert_eq!((Limit::Never.left_milliseconds(), Limit::Now.left_milliseconds()), (-1, 0));
    assert_eq!(Limit::At(clock::monotonic() - 1).left_milliseconds(), 0, "the time has passed");
    assert!(Limit::At(i64::MAX).left_milliseconds() == i32::MAX, "a time that never comes");
}

#[test]
fn a_limit_is_cut_only_if_it_is_later() {
    assert_eq!(Limit::Now.at_most(5), Limit::Now);
    assert_eq!(Limit::Never.at_most(5), Limit::After(5));
    assert_eq!([Limit::After(4).at_most(5), Limit::After(6).at_most(5)], [Limit::After(4), Limit::After(5)]);
    assert_eq!(Limit::At(clock::monotonic() - 1).at_most(5), Limit::After(0));
}
