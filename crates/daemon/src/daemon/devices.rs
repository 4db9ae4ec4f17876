//! Opens the network devices of ports without the daemon's lock.
//!
//! Requests about devices wait for locks of the kernel that any user can hold for as long as he likes (`docs/decisions/waits.md`). So
//! each device is opened on a thread of its own, and nobody waits for that thread longer than [`ANSWER_WITHIN`].
//!
//! A change that needs devices is refused with [`WantedDevice`]s before it has changed anything. `settle` has them opened, and tries the
//! change again with the results. The daemon opens the device of a port that was closed in the same way, and looks for the result when the
//! thread says that there is one (`reopen`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ringway_api::patience;
use ringway_config::{Name, Port};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::oneshot::{Receiver, channel};

use super::live::NewPort;
use super::open::{self, Place};
use super::refused::Refused;
use super::wanted_device::WantedDevice;

/// Longest wait for the kernel to open a device.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Longer for each device of a change.
const MORE: Duration = Duration::from_millis(50);
/// Most threads that open devices. Those that nobody waits for any more stay until the kernel answers.
const THREADS_MAX: usize = 64;
/// These threads.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Why a port's device is not open.
#[derive(Debug)]
pub enum NotOpen {
    /// The kernel refuses, or the machine has no thread.
    Refused(Refused),
    /// The kernel has not answered in time. With the device, if it is being opened.
    Unanswered(String, Option<Box<OpeningDevice>>),
}

impl NotOpen {
    /// Returns the reason, and the device if it is being opened still.
    pub fn into_parts(self) -> (Refused, Option<OpeningDevice>) {
        match self {
            Self::Refused(refused) => (refused, None),
            Self::Unanswered(what, opening) => (Refused::Unavailable(what), opening.map(|opening| *opening)),
        }
    }
}

impl From<NotOpen> for Refused {
    /// Gives up a device that is being opened.
    fn from(why: NotOpen) -> Self {
        why.into_parts().0
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

    /// Adds further results.
    pub fn append(&mut self, mut further: Self) {
        self.0.append(&mut further.0);
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
    /// No thread was started, for this reason.
    refused: Option<Refused>,
    result: Receiver<Result<NewPort, Refused>>,
}

impl WantedDevice {
    /// Begins to open the device.
    pub fn open(self) -> OpeningDevice {
        self.open_by(|WantedDevice { name, settings, runtime_dir, access, namespace, events, keeper }| {
            // The daemon chooses the poller.
            open::port(name, settings, 0, &Place { runtime_dir, access, namespace: namespace.as_ref(), events, keeper })
        })
    }

    fn open_by(self, open: impl FnOnce(&Self) -> Result<NewPort, Refused> + Send + 'static) -> OpeningDevice {
        let (name, settings, events) = (self.name.clone(), self.settings.clone(), Arc::clone(&self.events));
        let (done, result) = channel();
        let begin = || {
            let thread = Thread::claim()?;
            let run = move || {
                // Nobody may want it any more: then it is closed here.
                let _ = done.send(open(&self));
                drop(thread);
                events.wake();
            };
            let started = std::thread::Builder::new().name("open-device".to_owned()).spawn(run);
            started.map(drop).map_err(|why| Refused::by_system(format!("cannot start a thread: {why}"), &why))
        };
        let refused = begin().err();
        OpeningDevice { name, settings, begun: Instant::now(), refused, result }
    }

    /// Returns true if a predecessor may have left the device: it is as good as open, and nobody waits for the kernel's lock.
    fn is_left(&self) -> bool {
        self.keeper.has_left(|name| self.settings.settings.has_kept(name, &self.runtime_dir))
    }
}

/// One of the threads that open devices.
struct Thread;

impl Thread {
    fn claim() -> Result<Self, Refused> {
        let thread = Self;
        if THREADS.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX {
            let what = format!("the kernel has not answered yet about {THREADS_MAX} other devices");
            return Err(Refused::Unavailable(what));
        }
        Ok(thread)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OpeningDevice {
    /// Returns true if the port is to have these settings.
    pub fn is_for(&self, settings: &Port) -> bool {
        self.settings == *settings
    }

    /// Returns the result, if there is one.
    pub fn look(&mut self) -> Option<Result<NewPort, NotOpen>> {
        if let Some(refused) = self.refused.take() {
            return Some(Err(NotOpen::Refused(refused)));
        }
        match self.result.try_recv() {
            Ok(result) => Some(result.map_err(NotOpen::Refused)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Closed) => Some(Err(failed())),
        }
    }

    /// Waits for the result, no longer than `within`.
    async fn wait(mut self, within: Duration) -> TriedDevice {
        let (name, settings) = (self.name.clone(), self.settings.clone());
        if let Some(refused) = self.refused.take() {
            return TriedDevice { name, settings, result: Err(NotOpen::Refused(refused)) };
        }
        let result = match tokio::time::timeout(within, &mut self.result).await {
            Ok(Ok(result)) => result.map_err(NotOpen::Refused),
            Ok(Err(_)) => Err(failed()),
            Err(_) => Err(NotOpen::Unanswered(self.unanswered(), Some(Box::new(self)))),
        };
        TriedDevice { name, settings, result }
    }

    /// Returns why nobody waits any longer, if the kernel has not answered in time.
    pub fn late(&self) -> Option<String> {
        (self.begun.elapsed() >= patience(ANSWER_WITHIN)).then(|| self.unanswered())
    }

    fn unanswered(&self) -> String {
        let (switch, name, seconds) = (&self.settings.switch, &self.name, ANSWER_WITHIN.as_secs());
        format!(
            "the kernel has not answered for {seconds} s: it opens the device of port {switch}:{name}, and another program may hold the \
             kernel's lock of network devices"
        )
    }
}

fn failed() -> NotOpen {
    NotOpen::Refused(Refused::Failed("the thread that opens the device has failed".to_owned()))
}

/// Opens devices one after the other, and waits for all within [`ANSWER_WITHIN`], and 50 ms more for each of them: the kernel's lock may be held in slices. Those
/// that a predecessor left come first.
pub async fn open_all(mut wanted: Vec<WantedDevice>) -> TriedDevices {
    wanted.sort_by_cached_key(|wanted| !wanted.is_left());
    let within = patience(ANSWER_WITHIN + MORE * u32::try_from(wanted.len()).unwrap_or(u32::MAX));
    open_all_by(wanted, within, WantedDevice::is_left, WantedDevice::open).await
}

async fn open_all_by(
    wanted: Vec<WantedDevice>,
    within: Duration,
    is_left: impl Fn(&WantedDevice) -> bool,
    open: impl Fn(WantedDevice) -> OpeningDevice,
) -> TriedDevices {
    let mut tried = TriedDevices::default();
    let mut late = None;
    let deadline = Instant::now() + within;
    for wanted in wanted {
        let left = deadline.saturating_duration_since(Instant::now());
        let (is_left, late_before) = (is_left(&wanted), late.clone());
        let within = match late_before {
            None => left,
            // It needs no lock of the kernel, whatever another one waits for.
            Some(_) if is_left => left.max(patience(MORE)),
            // It would wait for the same lock.
            Some(what) => {
                let WantedDevice { name, settings, .. } = wanted;
                tried.0.push(TriedDevice { name, settings, result: Err(NotOpen::Unanswered(what, None)) });
                continue;
            }
        };
        let now = open(wanted).wait(within).await;
        if let Err(NotOpen::Unanswered(what, _)) = &now.result {
            late = Some(what.clone());
        }
        tried.0.push(now);
    }
    tried
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use ringway_config::{Access, Kind};
    use ringway_keeper::Link;
    use ringway_testing::until;

    fn wanted() -> WantedDevice {
        let name: Name = "tap0".parse().unwrap();
        WantedDevice {
            settings: Port::new("lan0".parse().unwrap(), Kind::Tap, &name),
            name,
            runtime_dir: PathBuf::new(),
            access: Access::default(),
            namespace: None,
            events: Arc::default(),
            keeper: Link::default(),
        }
    }

    #[test]
    fn a_kernel_that_does_not_answer_is_waited_for_so_long_and_named() {
        let (end, may_end) = std::sync::mpsc::channel::<()>();
        let mut opening = wanted().open_by(move |_| {
            let _ = may_end.recv();
            Err(Refused::Failed(String::new()))
        });
        assert!(opening.look().is_none() && opening.late().is_none());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let result = runtime.block_on(opening.wait(Duration::ZERO)).result;
        let Err(NotOpen::Unanswered(what, Some(mut opening))) = result else { panic!("it should wait in vain") };
        assert!(
            what.starts_with("the kernel has not answered for 5 s: it opens the device of port lan0:tap0"),
            "{what}"
        );
        opening.begun -= ANSWER_WITHIN;
        assert_eq!(opening.late(), Some(what));
        drop(end);
        until("what it has opened is not lost", || opening.look().is_some());
    }

    #[test]
    fn a_device_that_was_left_is_opened_whatever_another_one_waits_for_and_none_that_is_being_opened_is_given_up() {
        let (end, may_end) = std::sync::mpsc::channel::<()>();
        let late = std::cell::Cell::new(Some(may_end));
        let open = |wanted: WantedDevice| match late.take() {
            Some(may_end) => wanted.open_by(move |_| {
                let _ = may_end.recv();
                Err(Refused::Failed("late".to_owned()))
            }),
            None => wanted.open_by(|_| Err(Refused::Failed("left".to_owned()))),
        };
        let names = ["late", "left", "new"].map(|name| name.parse::<Name>().unwrap());
        let all = names.clone().map(|name| WantedDevice { name, ..wanted() }).into();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let is_left = |wanted: &WantedDevice| wanted.name.as_str() != "new";
        let mut tried = runtime.block_on(open_all_by(all, Duration::ZERO, is_left, open));
        drop(end);
        let [late, left, new] = names.map(|name| tried.take(&name, &wanted().settings).expect("a result").err());
        for (result, what) in [(late, "late"), (left, "left")] {
            let mut refused = None;
            match result {
                Some(NotOpen::Unanswered(_, Some(mut opening))) => until("it is there", || {
                    refused = opening.look().and_then(Result::err);
                    refused.is_some()
                }),
                result => refused = result,
            }
            assert!(matches!(&refused, Some(NotOpen::Refused(Refused::Failed(why))) if why == what), "{refused:?}");
        }
        assert!(matches!(new, Some(NotOpen::Unanswered(_, None))), "it would wait for the same lock: {new:?}");
    }

    #[test]
    fn a_result_is_of_the_port_with_the_settings_that_were_tried() {
        let mut opening = wanted().open_by(|_| Err(Refused::Failed("why".to_owned())));
        let result = loop {
            if let Some(result) = opening.look() {
                break result;
            }
            std::thread::yield_now();
        };
        let OpeningDevice { name, settings, .. } = opening;
        let others = Port { weight: settings.weight + 1, ..settings.clone() };
        let mut tried = TriedDevices(vec![TriedDevice { name: name.clone(), settings: settings.clone(), result }]);
        assert!(tried.take(&name, &others).is_none() && tried.have(&name, &settings));
        let Some(Err(NotOpen::Refused(Refused::Failed(why)))) = tried.take(&name, &settings) else {
            panic!("a result")
        };
        assert_eq!(why, "why");
        assert!(!tried.have(&name, &settings));
    }
}
