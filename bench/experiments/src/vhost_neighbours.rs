//! What two virtual machines lose by a third that takes no frames, and by a third that breaks the protocol again and again.

use std::any::Any;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ringway_traffic::{Split, VirtioEndpoint, VirtioOptions};

use crate::daemon::Daemon;
use crate::network::Network as _;
use crate::peers::vhost::{Vhost, VhostSwitch as _};
use crate::report::{Axis, Figure, Heading, RATE};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::trial::Contestant;
use crate::vhost::{Load, Saturation, Shared, pair, with_any};

const SIZES: [usize; 2] = [64, 1514];
/// Interval between two attempts of the broken front end.
const PAUSE: Duration = Duration::from_millis(10);

type Pair = Shared<Vhost<Daemon, Split>>;

/// The front end at the third port, or none; removed when dropped.
type Neighbour = Rc<dyn Any>;

/// A thread that connects and sends an invalid message, repeatedly.
struct BrokenFrontEnd {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BrokenFrontEnd {
    fn start(socket: PathBuf) -> BrokenFrontEnd {
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                if let Ok(mut stream) = UnixStream::connect(&socket) {
                    let timely = stream.set_read_timeout(Some(PAUSE));
                    // SET_VRING_ADDR with an invalid length, and then the end of the connection.
                    let _ = timely.and_then(|()| stream.write_all(&[9, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]));
                    let _ = stream.read(&mut [0; 64]);
                }
                std::thread::sleep(PAUSE);
            }
        });
        BrokenFrontEnd { stop, thread: Some(thread) }
    }
}

impl Drop for BrokenFrontEnd {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Two ports under load, and a neighbour or none.
struct WithNeighbour {
    ports: Saturation<Vhost<Daemon, Split>>,
    _neighbour: Neighbour,
}

impl Contestant for WithNeighbour {
    fn resume(&mut self) -> io::Result<()> {
        self.ports.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.ports.hold()
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        self.ports.window(span)
    }
}

/// Measures the figure.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let (cores, options) = (session.cores, VirtioOptions::default());
    let settings = crate::daemon::Settings { vhost_user: 3, ..session.vhost_settings() };
    let start = |neighbour: &dyn Fn(PathBuf) -> io::Result<Neighbour>| -> io::Result<(Pair, Neighbour)> {
        let pair: Pair = pair(Daemon::start(cores, &settings), cores, &options)?;
        let third = pair.borrow_mut().network().switch().sockets().swap_remove(2);
        pair.borrow_mut().network().resume()?;
        let neighbour = neighbour(third)?;
        pair.borrow_mut().network().hold()?;
        Ok((pair, neighbour))
    };
    let stopped = |socket: PathBuf| -> io::Result<Neighbour> {
        Ok(Rc::new(VirtioEndpoint::<Split>::attach(&socket, &options).map_err(io::Error::other)?))
    };
    let pairs = [
        (RINGWAY, start(&|_| Ok(Rc::new(())))),
        ("beside one that stands still", start(&stopped)),
        ("beside one that is broken", start(&|socket| Ok(Rc::new(BrokenFrontEnd::start(socket))))),
    ];
    let pairs = pairs.map(|(name, pair)| (name, pair.map(Rc::new)));
    let mut lineup = session.lineup();
    for size in session.places(&SIZES) {
        for (name, pair) in &pairs {
            let load = Load { sizes: vec![size], both: false, tcp: false, broadcasts: true };
            let beside = with_any(pair, |pair| WithNeighbour {
                ports: Saturation { pair: Rc::clone(&pair.0), load },
                _neighbour: Rc::clone(&pair.1),
            });
            lineup.add(name, size, beside);
        }
    }
    let heading = Heading {
        name: "vhost-neighbours".into(),
        title: "Forwarding between two vhost-user ports beside a third, one frame of sixteen a broadcast".into(),
        source: "VPE, section 3; what must hold of others",
        x: Axis { label: "frame size", unit: "bytes", logarithmic: false },
        y: RATE,
    };
    Ok(vec![session.measure("neighbours", heading, lineup)?])
}
