//! Replacement of a published value, under every interleaving that the memory model allows (loom).
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p ringway-engine --test loom_published`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use ringway_engine::Published;

/// Two numbers that belong together, and a count of how many of them are alive.
struct Value {
    first: u64,
    second: u64,
    alive: Arc<AtomicUsize>,
}

impl Value {
    fn new(number: u64, alive: &Arc<AtomicUsize>) -> Value {
        alive.fetch_add(1, Ordering::Relaxed);
        Value { first: number, second: number, alive: Arc::clone(alive) }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_reader_gets_the_value_that_belongs_to_the_version() {
    loom::model(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let published = Arc::new(Published::new(Value::new(1, &alive)));
        let writer = thread::spawn({
            let (published, alive) = (published.clone(), alive.clone());
            move || {
                published.replace(Arc::new(Value::new(2, &alive)));
                published.replace(Arc::new(Value::new(3, &alive)));
            }
        });
        // Like a poller, reads the version and then takes the newer value.
        let noticed = published.version();
        let (value, version) = published.get();
        assert!(version >= noticed, "older than what was announced");
        assert_eq!((value.first, value.second), (version, version));
        let again = published.version();
        assert!(again >= version, "versions never go back");
        drop(value);
        writer.join().expect("replaces");
        assert_eq!(published.version(), 3);
        assert_eq!(published.get().0.first, 3);
    });
}

#[test]
fn an_old_value_is_dropped_with_its_last_reader() {
    loom::model(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let published = Arc::new(Published::new(Value::new(1, &alive)));
        let reader = thread::spawn({
            let published = published.clone();
            move || {
                let (value, version) = published.get();
                assert_eq!((value.first, value.second), (version, version), "the held value is alive");
            }
        });
        let (held, _) = published.get();
        published.replace(Arc::new(Value::new(2, &alive)));
        assert_eq!(held.first, 1);
        reader.join().expect("reads");
        assert_eq!(alive.load(Ordering::Relaxed), 2, "the held value and the current one are alive");
        drop(held);
        assert_eq!(alive.load(Ordering::Relaxed), 1);
        drop(published);
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn two_writers_leave_the_value_of_the_last_version() {
    loom::model(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let published = Arc::new(Published::new(Value::new(1, &alive)));
        let writer = thread::spawn({
            let (published, alive) = (published.clone(), alive.clone());
            move || published.replace(Arc::new(Value::new(2, &alive)))
        });
        published.replace(Arc::new(Value::new(3, &alive)));
        writer.join().expect("replaces");
        let (value, version) = published.get();
        assert_eq!(version, 3);
        assert!(value.first == 2 || value.first == 3);
        assert_eq!(alive.load(Ordering::Relaxed), 1);
    });
}
