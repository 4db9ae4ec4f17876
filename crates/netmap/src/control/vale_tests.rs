//! Tests of the remembered header lengths.

use super::*;

#[test]
fn a_length_of_a_known_port_can_be_changed_where_there_is_no_room_for_another() {
    let mut headers = Headers { used: 0, all: [NO_HEADER; MOST_HEADERS] };
    let key = |number: usize| super::key(&format!("lan0:p{number}").parse().unwrap());
    for number in 0..MOST_HEADERS {
        assert_eq!(headers.set(key(number), 10), Ok(()));
    }
    assert_eq!(headers.set(key(MOST_HEADERS), 10), Err(libc::ENOMEM));
    assert_eq!(headers.set(key(7), 12), Ok(()));
    assert_eq!((headers.of(&key(7)), headers.of(&key(8)), headers.of(&key(MOST_HEADERS))), (12, 10, 0));
}
