//! Messages there and back, and messages that are wrong.

use super::*;

fn name() -> PortName {
    "lan0:a".parse().expect("a name")
}

fn register() -> Register {
    Register {
        name: name(),
        tx: Rings::Some(1, 3),
        rx: Rings::All,
        exclusive: true,
        wish: Wish { tx_rings: 3, header: 12, ..Wish::default() },
        extra_buffers: 7,
        region: 5,
        monitor: Monitor { sent: true, received: false },
        polling: Polling { no_tx: true, do_rx: false },
    }
}

fn granted() -> Granted {
    let shape = Wish { header: 12, ..Wish::default() }.shape(DEFAULT_BUFFER_SIZE);
    let numbers =
        Numbers { name: name(), region: 5, region_bytes: 64 << 20, shape, header: 12, mac: [2, 0, 0, 0, 0, 9] };
    Granted {
        numbers,
        colour: 3,
        base: 1 << 20,
        interface: 4096,
        buffers: 16 << 20,
        buffer_count: 1000,
        extra_buffers: 2,
        extra_head: 77,
        tx: 0..1,
        rx: 0..0,
        exclusive: false,
        polling: Polling { no_tx: false, do_rx: true },
    }
}

fn requests() -> Vec<Request> {
    vec![
        Request::Open(Family([7; FAMILY_BYTES])),
        Request::Register(register()),
        Request::Recall,
        Request::Info(name(), Wish { rx_slots: 64, ..Wish::default() }),
        Request::List(3),
        Request::Attach(name()),
        Request::Detach(name()),
        Request::New("v0".to_owned()),
        Request::Delete("v0".to_owned()),
    ]
}

#[test]
fn what_is_encoded_is_decoded_to_the_same() {
    let of_pipe = Register { name: "lan0:a{1".parse().expect("a name"), ..register() };
    for request in requests().into_iter().chain([Request::Register(of_pipe)]) {
        let message = request.encode();
        assert!(is_netmap(&message));
        assert_eq!(Request::decode(&message), Ok(request));
    }
    let listed = Reply::Listed { name: name(), switch_index: 1, port_index: 2 };
    let refused = Reply::Refused { errno: 16, text: "busy".to_owned() };
    for reply in [Reply::Done, refused, Reply::Granted(granted()), Reply::Info(granted().numbers), listed] {
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    }
}

#[test]
fn a_reply_has_the_tag_of_its_request_whatever_its_text() {
    for request in requests() {
        let message = tagged(request.encode(), u64::MAX - 1);
        assert_eq!((tag_of(&message), Request::decode(&message)), (u64::MAX - 1, Ok(request)));
    }
    let text = "x".repeat(TEXT_BYTES);
    let refused = Reply::Refused { errno: 16, text: format!("{text}x") };
    let message = tagged(refused.encode(), 7);
    assert_eq!((tag_of(&message), Reply::decode(&message)), (7, Ok(Reply::Refused { errno: 16, text })));
    assert_eq!(tag_of(&message[1..]), 0, "no message");
}

#[test]
fn a_request_with_a_byte_that_it_does_not_use_is_refused() {
    for request in requests() {
        let mut message = request.encode();
        message[REQUEST_BYTES - TAG_BYTES - 1] = 1;
        assert_eq!(Request::decode(&message), Err(MessageError::Reserved), "{request:?}");
        message = request.encode();
        message[6] = 99;
        assert_eq!(Request::decode(&message), Err(MessageError::Kind(99)));
    }
    let mut message = Request::Recall.encode();
    message[31] = 1;
    assert_eq!(Request::decode(&message), Err(MessageError::Reserved));
    message = Request::Register(register()).encode();
    message[31] = 32;
    assert_eq!(Request::decode(&message), Err(MessageError::Reserved), "a bit without a meaning");
}

#[test]
fn numbers_out_of_range_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Register)| {
        let mut register = register();
        change(&mut register);
        Request::decode(&Request::Register(register).encode()).expect_err("refused").to_string()
    };
    assert!(refused(&|r| r.tx = Rings::Some(3, 3)).contains("first ring 3"));
    assert!(refused(&|r| r.wish.tx_rings = 17).contains("tx_rings 17"));
    assert!(refused(&|r| r.wish.rx_slots = 3).contains("rx_slots 3"));
    assert!(refused(&|r| r.wish.buffer_size = 2000).contains("buffer_size 2000"));
    assert!(refused(&|r| r.wish.header = 11).contains("header 11"));
    assert!(refused(&|r| r.name.port = "a/b".to_owned()).contains("a/b"));
    let of_pipe = Request::Attach("lan0:a}1".parse().expect("a name")).encode();
    assert!(matches!(Request::decode(&of_pipe), Err(MessageError::Name(_))), "only ports are attached");
    assert_eq!(Request::decode(&[0; 3]), Err(MessageError::Length(3)));
    assert!(matches!(Request::decode(&[0; REQUEST_BYTES]), Err(MessageError::Magic(0))));
}

#[test]
fn a_granting_reply_whose_port_lies_outside_its_region_is_no_reply() {
    let refused = |change: &dyn Fn(&mut Granted)| {
        let mut granted = granted();
        change(&mut granted);
        Reply::decode(&Reply::Granted(granted).encode()).expect_err("refused").to_string()
    };
    assert!(refused(&|g| g.base = 16 << 20).contains("base"));
    assert!(refused(&|g| g.base = 1).contains("base"));
    assert!(refused(&|g| g.base = u64::MAX - 4095).contains("base"));
    assert!(refused(&|g| g.buffers = 1 << 40).contains("buffers"));
    assert!(refused(&|g| g.buffer_count = u32::MAX).contains("buffer_count"));
}

#[test]
fn a_port_in_a_region_has_the_offsets_of_a_port_alone_moved_by_its_base() {
    let layout = granted().layout().expect("a layout");
    let alone = Layout::new(layout.shape, 3).expect("a layout");
    let base = 1 << 20;
    assert_eq!(layout.doorbell(0), alone.doorbell(0) + base);
    assert_eq!(layout.tx_ring(0), alone.tx_ring(0) + base);
    assert_eq!(layout.rx_ring(0), alone.rx_ring(0) + base);
    assert_eq!((layout.base, layout.end), (base, alone.buffers + base));
    assert_eq!(layout.buffer(2), (16 << 20) + 2 * 2112);
}
