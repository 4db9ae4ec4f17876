//! Opens the network devices of ports without the daemon's lock.
//!
//! Requests about devices wait for locks of the kernel that any user can hold for as long as he likes (`docs/decisions/waits.md`). So
//! each device is opened on a thread of its own, and nobody waits for that thread longer than [`ANSWER_WITHIN`].
//!
//! A change that needs devices is refused with [`WantedDevice`]s before it has changed anything. `settle` has them opened, and tries the
//! change again with the results. The daemon opens the device of a port that was closed in the same way, and looks for the result when the
//! thread says that there is one (`reopen`).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use super::events::Events;
use super::live::NewPort;
use super::open::{self, Place};
use super::refused::Refused;
use super::state::Daemon;
use crate::config::{Access, Name, Port};
use crate::inject::patience;

/// Longest wait for the kernel to open a device.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Most devices of a change that are being opened.
const AT_ONCE: usize = 16;
/// Interval of looks for a result.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A port whose device has to be opened.
#[derive(Debug)]
pub struct WantedDevice {
    name: Name,
    settings: Port,
    runtime_dir: PathBuf,
    access: Access,
    events: Arc<Events>,
}

/// Why a port's device is not open.
#[derive(Debug)]
pub enum NotOpen {
    /// The kernel refuses, or the machine has no thread.
    Refused(Refused),
    /// The kernel has not answered in time.
    Unanswered(String),
}

impl From<NotOpen> for Refused {
    fn from(why: NotOpen) -> Self {
        match why {
            NotOpen::Refused(refused) => refused,
            NotOpen::Unanswered(what) => Self::Unavailable(what),
        }
    }
}

/// The result for a port.
#[derive(Debug)]
pub struct TriedDevice {
    name: Name,
    settings: Port,
    result: Result<NewPort, NotOpen>,
}

/// The results for a change.
#[derive(Debug, Default)]
pub struct TriedDevices(Vec<TriedDevice>);

impl TriedDevices {
    /// Takes the result for this port, if its device was tried with these settings.
    pub fn take(&mut self, name: &Name, settings: &Port) -> Option<Result<NewPort, NotOpen>> {
        let at = self.0.iter().position(|tried| tried.is_of(name, settings))?;
        Some(self.0.swap_remove(at).result)
    }

    /// Returns true if there is a result for this port.
    pub fn have(&self, name: &Name, settings: &Port) -> bool {
        self.0.iter().any(|tried| tried.is_of(name, settings))
    }
}

impl TriedDevice {
    fn is_of(&self, name: &Name, settings: &Port) -> bool {
        self.name == *name && self.settings == *settings
    }
}

/// A device that is being opened. Dropping this gives it up: the thread closes what it still opens.
#[derive(Debug)]
pub struct OpeningDevice {
    name: Name,
    settings: Port,
    begun: Instant,
    result: Receiver<Result<NewPort, Refused>>,
}

impl WantedDevice {
    /// Begins to open the device.
    pub fn open(self) -> OpeningDevice {
        self.open_by(|WantedDevice { name, settings, runtime_dir, access, events }| {
            // The daemon chooses the poller.
            open::port(name, settings, 0, &Place { runtime_dir, access, events })
        })
    }

    fn open_by(self, open: impl FnOnce(&Self) -> Result<NewPort, Refused> + Send + 'static) -> OpeningDevice {
        let (name, settings) = (self.name.clone(), self.settings.clone());
        let (done, result) = channel();
        let failed = done.clone();
        let thread = std::thread::Builder::new().name("open-device".to_owned()).spawn(move || {
            let result = open(&self);
            // Nobody may want it any more: then it is closed here.
            let _ = done.send(result);
            self.events.wake();
        });
        if let Err(why) = thread {
            let _ = failed.send(Err(Refused::by_system(format!("cannot start a thread: {why}"), &why)));
        }
        OpeningDevice { name, settings, begun: Instant::now(), result }
    }
}

impl OpeningDevice {
    /// Returns true if the port is to have these settings.
    pub fn is_for(&self, settings: &Port) -> bool {
        self.settings == *settings
    }

    /// Returns the result, if there is one.
    pub fn look(&self) -> Option<Result<NewPort, NotOpen>> {
        match self.result.try_recv() {
            Ok(result) => Some(result.map_err(NotOpen::Refused)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err(NotOpen::Refused(Refused::Failed("the thread that opens the device has failed".to_owned()))))
            }
        }
    }

    /// Returns why nobody waits any longer, if the kernel has not answered in time.
    pub fn unanswered(&self) -> Option<String> {
        (self.begun.elapsed() >= patience(ANSWER_WITHIN)).then(|| {
            let switch = &self.settings.switch;
            let name = &self.name;
            format!(
                "the kernel has not answered for {} s: it opens the device of port {switch}:{name}, and another program may hold the \
                 kernel's lock of network devices",
                ANSWER_WITHIN.as_secs()
            )
        })
    }

    fn tried(self, result: Result<NewPort, NotOpen>) -> TriedDevice {
        TriedDevice { name: self.name, settings: self.settings, result }
    }

    /// Returns the result, or itself if it has to be waited for.
    fn finish(self) -> Result<TriedDevice, Self> {
        let result = self.look().or_else(|| Some(Err(NotOpen::Unanswered(self.unanswered()?))));
        match result {
            Some(result) => Ok(self.tried(result)),
            None => Err(self),
        }
    }
}

/// The devices of a change.
struct OpeningDevices {
    waiting: Vec<WantedDevice>,
    opening: Vec<OpeningDevice>,
    tried: Vec<TriedDevice>,
}

impl OpeningDevices {
    fn begin(wanted: Vec<WantedDevice>) -> Self {
        Self { waiting: wanted, opening: Vec::new(), tried: Vec::new() }
    }

    /// Looks for results, and opens more. Returns true if each device has a result.
    fn are_done(&mut self) -> bool {
        for opening in std::mem::take(&mut self.opening) {
            match opening.finish() {
                Ok(done) => self.tried.push(done),
                Err(waits) => self.opening.push(waits),
            }
        }
        let unanswered = self.tried.iter().find_map(|tried| match &tried.result {
            Err(NotOpen::Unanswered(what)) => Some(what.clone()),
            _ => None,
        });
        if let Some(what) = unanswered {
            // The others would wait for the same lock, one after the other.
            let others = self.waiting.drain(..).map(|WantedDevice { name, settings, .. }| TriedDevice {
                name,
                settings,
                result: Err(NotOpen::Unanswered(what.clone())),
            });
            self.tried.extend(others);
        }
        let more = self.waiting.len().min(AT_ONCE.saturating_sub(self.opening.len()));
        self.opening.extend(self.waiting.drain(..more).map(WantedDevice::open));
        self.opening.is_empty()
    }
}

/// Opens devices, and waits for them.
pub async fn open_all(wanted: Vec<WantedDevice>) -> TriedDevices {
    let mut opening = OpeningDevices::begin(wanted);
    while !opening.are_done() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    TriedDevices(opening.tried)
}

/// The same, and this thread waits.
pub fn open_all_here(wanted: Vec<WantedDevice>) -> TriedDevices {
    let mut opening = OpeningDevices::begin(wanted);
    while !opening.are_done() {
        std::thread::sleep(LOOK_EVERY);
    }
    TriedDevices(opening.tried)
}

impl Daemon {
    /// What has to be opened for a port with these settings.
    pub(super) fn wanted_device(&self, name: &Name, settings: &Port, access: &Access) -> WantedDevice {
        WantedDevice {
            name: name.clone(),
            settings: settings.clone(),
            runtime_dir: self.running.runtime_dir().to_owned(),
            access: access.clone(),
            events: Arc::clone(&self.events),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Kind;

    fn wanted() -> WantedDevice {
        let name: Name = "tap0".parse().unwrap();
        WantedDevice {
            settings: Port::new("lan0".parse().unwrap(), Kind::Tap, &name),
            name,
            runtime_dir: PathBuf::new(),
            access: Access::default(),
            events: Arc::default(),
        }
    }

    #[test]
    fn a_kernel_that_does_not_answer_is_waited_for_so_long_and_named() {
        let (end, may_end) = channel::<()>();
        let mut opening = wanted().open_by(move |_| {
            let _ = may_end.recv();
            Err(Refused::Failed(String::new()))
        });
        assert!(opening.look().is_none() && opening.unanswered().is_none());
        opening.begun -= ANSWER_WITHIN;
        let TriedDevice { result, .. } = opening.finish().expect("a result");
        let Err(NotOpen::Unanswered(what)) = result else { panic!("{result:?}") };
        assert!(
            what.starts_with("the kernel has not answered for 5 s: it opens the device of port lan0:tap0"),
            "{what}"
        );
        drop(end);
    }

    #[test]
    fn a_result_is_of_the_port_with_the_settings_that_were_tried() {
        let WantedDevice { name, settings, .. } = wanted();
        let opening = wanted().open_by(|_| Err(Refused::Failed("why".to_owned())));
        let result = loop {
            if let Some(result) = opening.look() {
                break result;
            }
        };
        let mut tried = TriedDevices(vec![opening.tried(result)]);
        let others = Port { weight: settings.weight + 1, ..settings.clone() };
        assert!(tried.take(&name, &others).is_none() && tried.have(&name, &settings));
        assert!(
            matches!(tried.take(&name, &settings), Some(Err(NotOpen::Refused(Refused::Failed(why)))) if why == "why")
        );
        assert!(!tried.have(&name, &settings));
    }
}
