//! The vhost-user protocol, and back ends that deviate from it.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ringway_testing::{PATIENCE, until_some};
use ringway_traffic::{Endpoint, Packed, SocketRole, Split, VirtioEndpoint, VirtioOptions};

use crate::backend::{
    ALL, Connection, EVENT_IDX, IN_ORDER, MRG_RXBUF, PROTOCOL_FEATURES, RING_PACKED, Session, VERSION_1,
};
use crate::scene::{attach, patient};

/// Options with a short timeout, for back ends that do not answer.
fn quick() -> VirtioOptions {
    VirtioOptions { within: Duration::from_millis(200), ..VirtioOptions::default() }
}

/// Runs the given back end at a socket.
fn with_backend<T: Send + 'static>(
    act: impl FnOnce(Connection) -> T + Send + 'static,
) -> (PathBuf, JoinHandle<T>, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    (path, thread::spawn(move || act(Connection::accept(&listener))), dir)
}

fn refused<R: ringway_traffic::Ring>(path: &Path, options: &VirtioOptions) -> String {
    VirtioEndpoint::<R>::attach(path, options).expect_err("an error").to_string()
}

#[test]
fn rings_are_told_in_an_order_that_back_ends_know() {
    let (driver, session) = attach::<Split>(&VirtioOptions { tx_ring: 64, rx_ring: 128, ..patient() });
    assert_eq!(session.requests, [3, 1, 15, 16, 2, 5, 8, 10, 9, 13, 12, 8, 10, 9, 13, 12, 18, 18]);
    assert_eq!(session.features, VERSION_1 | PROTOCOL_FEATURES, "only the requested features");
    assert_eq!([session.rings[0].size, session.rings[1].size], [128, 64]);
    for ring in &session.rings {
        assert!(ring.descriptors % 64 == 0 && ring.driver % 2 == 0 && ring.device % 64 == 0);
    }
    drop(driver);
    assert!(session.connection.next_request().is_none(), "dropping the driver ends the connection");
}

#[test]
fn features_are_those_that_were_asked_for() {
    let all = VirtioOptions { in_order: true, event_idx: true, mergeable: true, ..patient() };
    let (_driver, session) = attach::<Packed>(&all);
    let wanted = VERSION_1 | PROTOCOL_FEATURES | RING_PACKED | IN_ORDER | EVENT_IDX | MRG_RXBUF;
    assert_eq!(session.features, wanted);
}

#[test]
fn a_feature_that_is_not_offered_is_named() {
    for (option, lacking, name) in [
        (VirtioOptions { in_order: true, ..patient() }, IN_ORDER, "VIRTIO_F_IN_ORDER"),
        (VirtioOptions { event_idx: true, ..patient() }, EVENT_IDX, "VIRTIO_F_EVENT_IDX"),
        (VirtioOptions { mergeable: true, ..patient() }, MRG_RXBUF, "VIRTIO_NET_F_MRG_RXBUF"),
        (patient(), VERSION_1, "VIRTIO_F_VERSION_1"),
        (patient(), RING_PACKED, "VIRTIO_F_RING_PACKED"),
    ] {
        let (path, backend, _dir) = with_backend(move |connection| {
            while let Some(message) = connection.next_request() {
                if message.request == 1 {
                    connection.answer(1, ALL & !lacking);
                }
            }
        });
        let said = refused::<Packed>(&path, &option);
        assert!(said.contains("does not offer") && said.contains(name), "{said}");
        backend.join().expect("the connection ends");
    }
}

#[test]
fn a_back_end_without_protocol_features_will_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    let backend = thread::spawn(move || {
        let connection = Connection::accept(&listener);
        let mut requests = Vec::new();
        while let Some(message) = connection.next_request() {
            requests.push((message.request, message.flags));
            match message.request {
                1 => connection.answer(1, VERSION_1),
                2 => assert_eq!(message.u64(0), VERSION_1),
                _ => {}
            }
        }
        requests
    });
    let driver = VirtioEndpoint::<Split>::attach(&path, &patient()).expect("a device");
    drop(driver);
    let requests = backend.join().expect("the requests");
    // Without protocol features, the driver asks for no replies, and rings are enabled from the start.
    assert_eq!(
        requests.iter().map(|told| told.0).collect::<Vec<_>>(),
        [3, 1, 2, 5, 8, 10, 9, 13, 12, 8, 10, 9, 13, 12]
    );
    assert!(requests.iter().all(|told| told.1 == 1));
}

#[test]
fn a_refusal_is_told_with_its_request() {
    let (path, backend, _dir) = with_backend(|connection| {
        while let Some(message) = connection.next_request() {
            match message.request {
                1 => connection.answer(1, ALL),
                15 => connection.answer(15, 8),
                3 | 16 => {}
                request => connection.answer(request, u64::from(request == 5)),
            }
        }
    });
    let said = refused::<Split>(&path, &patient());
    assert!(said.contains("SET_MEM_TABLE: the back end refused it with 1"), "{said}");
    backend.join().expect("the connection ends");
}

#[test]
fn silence_is_not_waited_for_longer_than_was_said() {
    // A driver with more patience has begun before, and waits still when the other one gives up.
    let (release, released) = mpsc::channel::<()>();
    let (path, backend, _dir) = with_backend(move |connection| {
        let first = connection.next_request();
        assert!(released.recv().is_err());
        first
    });
    let other = thread::spawn(move || refused::<Split>(&path, &VirtioOptions { within: 10 * PATIENCE, ..patient() }));
    let (path, quick_backend, _quick_dir) = with_backend(|connection| while connection.next_request().is_some() {});
    let said = refused::<Split>(&path, &quick());
    assert!(said.contains("GET_FEATURES: no answer in time"), "{said}");
    quick_backend.join().expect("the connection ends");
    assert!(!other.is_finished());
    drop(release);
    assert!(backend.join().expect("the back end").is_some());
    let said = other.join().expect("the other driver");
    assert!(!said.contains("no answer in time"), "{said}");
}

#[test]
fn an_end_in_the_middle_is_told() {
    let (path, backend, _dir) = with_backend(|connection| {
        connection.next_request();
    });
    let said = refused::<Split>(&path, &patient());
    assert!(said.contains("the back end closed the connection") || said.contains("Broken pipe"), "{said}");
    backend.join().expect("the connection ends");
}

#[test]
fn an_answer_to_something_else_is_told() {
    let (path, backend, _dir) = with_backend(|connection| {
        while let Some(message) = connection.next_request() {
            if message.request == 1 {
                connection.answer(11, ALL);
            }
        }
    });
    let said = refused::<Split>(&path, &patient());
    assert!(said.contains("GET_FEATURES: it answers with request 11"), "{said}");
    backend.join().expect("the connection ends");
}

#[test]
fn the_driver_may_be_the_one_that_listens() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let backend = {
        let path = path.clone();
        thread::spawn(move || {
            let socket = until_some("the driver listens", || UnixStream::connect(&path).ok());
            Session::with(Connection::over(socket), ALL, 1)
        })
    };
    let options = VirtioOptions { socket_role: SocketRole::Listen, ..patient() };
    let mut driver = VirtioEndpoint::<Split>::attach(&path, &options).expect("a device");
    assert!(!path.exists(), "the socket is removed after its only use");
    assert_eq!(driver.tx_room(), 256);
    backend.join().expect("a session");

    let options = VirtioOptions { socket_role: SocketRole::Listen, ..quick() };
    let said = refused::<Split>(&path, &options);
    assert!(said.contains("nobody connected within 200ms"), "{said}");
    assert!(!path.exists());
}

#[test]
fn without_a_back_end_it_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let said = refused::<Split>(&dir.path().join("socket"), &quick());
    assert!(said.starts_with("no vhost-user back end at ") && said.contains("No such file"), "{said}");
}

#[test]
fn a_back_end_that_goes_is_noticed() {
    let (mut driver, session) = attach::<Packed>(&patient());
    assert!(driver.wait(true, Duration::ZERO).is_ok());
    drop(session);
    for timeout in [Duration::ZERO, Duration::from_secs(10)] {
        let error = driver.wait(true, timeout).expect_err("the back end is gone");
        assert!(
            error.kind() == std::io::ErrorKind::ConnectionReset && error.to_string().ends_with("is gone"),
            "{error}"
        );
    }
}

#[test]
fn another_queue_pair_can_be_used() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    let backend = thread::spawn(move || {
        let session = Session::with(Connection::accept(&listener), ALL | 1 << 22, 3);
        (Session::with(Connection::accept(&listener), ALL | 1 << 22, 3), session)
    });
    let options = VirtioOptions { pair: 2, ..patient() };
    let mut driver = VirtioEndpoint::<Split>::attach(&path, &options).expect("a device");
    let said = refused::<Split>(&path, &VirtioOptions { pair: 3, ..options });
    assert!(said.contains("has 3 queue pairs, not 4"), "{said}");
    assert!(driver.tx_push(60, |frame| frame.fill(7)));
    driver.tx_flush();
    drop(backend);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for (options, wanted) in [
        (VirtioOptions { tx_ring: 100, ..quick() }, "a virtio ring of 100 descriptors: a power of two from 2 to 32768"),
        (VirtioOptions { rx_ring: 65_536, ..quick() }, "a virtio ring of 65536 descriptors"),
        (VirtioOptions { tx_ring: 0, ..quick() }, "a virtio ring of 0 descriptors"),
        (VirtioOptions { buffer_size: 100, ..quick() }, "a buffer of 100 bytes: a multiple of 64"),
        (VirtioOptions { buffer_size: 0, ..quick() }, "a buffer of 0 bytes"),
    ] {
        let said = refused::<Split>(Path::new("/nonexistent"), &options);
        assert!(said.contains(wanted), "{said}");
    }
}
