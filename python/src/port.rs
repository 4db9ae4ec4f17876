//! The port as Python sees it.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyBufferError, PyIndexError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use ringway_abi::layout::MAX_FRAME;
use ringway_abi::offload::PREFIX_BYTES;
use ringway_client::{NotExchanged, Offload, Port as Client, Shape, TxRing};

use crate::bytes::{has_bytes, with_bytes};
use crate::fork::Process;
use crate::frame::{Frame, Pool, Received};
use crate::memory::{Area, Memory};
use crate::wait::{Flag, Sleeper, Watch};
use crate::{PortEnded, attach_error};

/// Most frames that one lock of the port takes out of its rings.
const AT_ONCE: usize = 256;
/// Pause of a sender that finds room, but too little for its frame.
const TOO_LITTLE: Duration = Duration::from_micros(100);

/// An attached process port.
#[pyclass(frozen, module = "ringway._native")]
pub(crate) struct Port {
    name: String,
    mac: [u8; 6],
    shape: Shape,
    /// Bytes of the longest frame that can be sent, with or without an offload.
    longest: usize,
    pool: Arc<Pool>,
    owner: Process,
    state: Mutex<State>,
}

struct State {
    /// `None` when the port is closed.
    client: Option<Client>,
    /// Why the switch ended the port, once that is known.
    ended: Option<String>,
    /// Up when the port is closed: wakes the sleepers.
    closed: Flag,
    /// What earlier sleeps left.
    sleepers: Vec<Sleeper>,
    /// The receive ring that is looked at first.
    first_ring: usize,
    readable: Option<Watch>,
    writable: Option<Watch>,
}

/// What a thread waits for.
#[derive(Clone, Copy)]
enum Wanted {
    Frames,
    Room,
    /// The switch has taken all frames that were sent.
    Sent,
}

/// When to stop waiting.
#[derive(Clone, Copy)]
enum Deadline {
    Never,
    At(Instant),
}

impl Deadline {
    /// `timeout` in seconds; `None` is without limit.
    fn after(timeout: Option<f64>) -> PyResult<Deadline> {
        let Some(seconds) = timeout else { return Ok(Deadline::Never) };
        if seconds.is_nan() || seconds < 0.0 {
            let text = format!("timeout {seconds} is not possible: seconds, 0 or more, or None for no limit");
            return Err(PyValueError::new_err(text));
        }
        let time = Duration::try_from_secs_f64(seconds).ok();
        // What the clock cannot represent is longer than any process lives.
        Ok(time.and_then(|time| Instant::now().checked_add(time)).map_or(Deadline::Never, Deadline::At))
    }

    /// The time that is left, `Some(None)` without limit; `None` when it has passed.
    fn left(self) -> Option<Option<Duration>> {
        match self {
            Deadline::Never => Some(None),
            Deadline::At(end) => end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()).map(Some),
        }
    }
}

fn closed(name: &str) -> PyErr {
    PyValueError::new_err(format!("the port {name} is closed"))
}

fn of_another_process(name: &str) -> PyErr {
    PyValueError::new_err(format!("the port {name} belongs to the process that made it, not to its child"))
}

impl State {
    fn client(&mut self, name: &str) -> PyResult<&mut Client> {
        self.client.as_mut().ok_or_else(|| closed(name))
    }

    /// Returns why the switch has ended the port.
    fn ended(&mut self) -> Option<String> {
        if self.ended.is_none() {
            self.ended = self.client.as_ref().and_then(Client::ended);
        }
        self.ended.clone()
    }

    /// Asks for a call. Returns true when there is no reason to sleep.
    fn want(&mut self, wanted: Wanted) -> bool {
        self.client.as_mut().is_none_or(|client| match wanted {
            Wanted::Frames => client.want_rx(),
            Wanted::Room => client.want_tx(),
            Wanted::Sent => client.want_sent(),
        })
    }

    /// Takes up to `max` frames out of the rings.
    fn take(&mut self, name: &str, pool: &Pool, max: usize) -> PyResult<Vec<Received>> {
        let mut taken = Vec::with_capacity(max.min(AT_ONCE));
        let first = self.first_ring;
        let rings = self.client(name)?.rx_rings();
        let (number, mut left_some) = (rings.len(), false);
        let mut spares = pool.spares();
        for step in 0..number {
            let ring = &mut rings[(first + step) % number];
            while taken.len() < max {
                if let Some(mut spare) = spares.pop() {
                    match ring.exchange(&mut spare) {
                        Ok(len) => {
                            taken.push(Received::InPlace(spare, len));
                            continue;
                        }
                        Err(NotExchanged::SeveralSlots) => spares.push(spare),
                        Err(NotExchanged::Empty) => {
                            // A frame that arrives from now on is not copied: there is a buffer for it.
                            spares.push(spare);
                            break;
                        }
                    }
                }
                if ring.drain(1, |bytes| taken.push(Received::Copied(bytes.to_vec()))) == 0 {
                    break;
                }
            }
            left_some |= ring.available() > 0;
        }
        drop(spares);
        self.first_ring = (first + 1) % number;
        self.after_receiving(left_some);
        Ok(taken)
    }

    /// Takes up to `max` frames as copies.
    fn copy(&mut self, name: &str, max: usize, mut take: impl FnMut(&[u8])) -> PyResult<usize> {
        let mut taken = 0;
        let first = self.first_ring;
        let rings = self.client(name)?.rx_rings();
        let (number, mut left_some) = (rings.len(), false);
        for step in 0..number {
            let ring = &mut rings[(first + step) % number];
            taken += ring.drain(max - taken, &mut take);
            left_some |= ring.available() > 0;
        }
        self.first_ring = (first + 1) % number;
        self.after_receiving(left_some);
        Ok(taken)
    }

    /// Keeps the descriptor for event loops true.
    fn after_receiving(&mut self, left_some: bool) {
        let (Some(watch), Some(client)) = (&mut self.readable, &mut self.client) else { return };
        if left_some {
            watch.raise();
        } else {
            watch.arm(|| client.want_rx());
        }
    }
}

impl Port {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a child of the process that made the port: both would use one memory and the same descriptors.
    fn own_state(&self) -> PyResult<MutexGuard<'_, State>> {
        if self.is_inherited() {
            return Err(of_another_process(&self.name));
        }
        Ok(self.state())
    }

    fn is_inherited(&self) -> bool {
        self.owner != Process::this()
    }

    /// Slots of all receive rings: no more frames are there at a time.
    fn most_received(&self) -> usize {
        self.shape.rx_slots as usize * usize::from(self.shape.rx_rings)
    }

    /// Sleeps until there is what is `wanted`. Returns false when `deadline` has passed first.
    fn wait(&self, py: Python<'_>, wanted: Wanted, deadline: Deadline) -> PyResult<bool> {
        loop {
            let left = deadline.left();
            let sleeper = {
                let mut state = self.own_state()?;
                if state.client.is_none() {
                    return Err(closed(&self.name));
                }
                if left.is_some() && state.want(wanted) || left.is_none() && self.has(&mut state, wanted) {
                    return Ok(true);
                }
                if let Some(reason) = state.ended() {
                    return Err(PortEnded::new_err(reason));
                }
                if left.is_none() {
                    return Ok(false);
                }
                match state.sleepers.pop() {
                    Some(sleeper) => sleeper,
                    None => Sleeper::new(state.client.as_ref().ok_or_else(|| closed(&self.name))?, &state.closed)?,
                }
            };
            let slept = py.detach(|| sleeper.sleep(left.flatten()));
            {
                let mut state = self.state();
                if state.client.is_some() {
                    state.sleepers.push(sleeper);
                }
            }
            match slept {
                Ok(()) => {}
                Err(rustix::io::Errno::INTR) => py.check_signals()?,
                Err(error) => return Err(PyOSError::new_err((error.raw_os_error(), error.to_string()))),
            }
        }
    }

    /// Looks without asking for a call.
    fn has(&self, state: &mut State, wanted: Wanted) -> bool {
        state.client.as_mut().is_none_or(|client| match wanted {
            Wanted::Frames => client.rx_rings().iter_mut().any(|ring| ring.available() > 0),
            Wanted::Room => client.tx_rings().iter_mut().any(|ring| ring.room() > 0),
            Wanted::Sent => client.tx_rings().iter_mut().all(|ring| ring.is_sent()),
        })
    }

    /// Bytes before each frame.
    fn prefix(&self) -> usize {
        if self.shape.offload { PREFIX_BYTES } else { 0 }
    }

    /// Takes frames, at least one before `deadline`.
    fn receive(&self, py: Python<'_>, max: usize, timeout: Option<f64>) -> PyResult<Vec<Frame>> {
        let mut deadline = None;
        loop {
            let taken = self.own_state()?.take(&self.name, &self.pool, max.min(self.most_received()))?;
            if !taken.is_empty() || max == 0 {
                // From here on a frame gives its buffer back, also if it does not come to a view.
                let prefix = self.prefix();
                return Ok(taken.into_iter().map(|bytes| Frame::new(bytes, prefix, &self.pool)).collect());
            }
            let deadline = match deadline {
                Some(deadline) => deadline,
                None => *deadline.insert(Deadline::after(timeout)?),
            };
            if !self.wait(py, Wanted::Frames, deadline)? {
                return Ok(Vec::new());
            }
        }
    }

    /// Queues `item`, a frame or a pair of frame and header. Returns false when there is no room.
    fn push(&self, item: &Bound<'_, PyAny>, ring: usize) -> PyResult<bool> {
        let Ok(pair) = item.cast::<PyTuple>() else { return self.push_frame(item, None, ring) };
        if !self.shape.offload {
            let text = "a pair of frame and offload needs a port that was attached with offload=True";
            return Err(PyValueError::new_err(text));
        }
        let (frame, header) = pair.extract::<(Bound<'_, PyAny>, Option<Bound<'_, PyAny>>)>()?;
        let Some(header) = header else { return self.push_frame(&frame, None, ring) };
        let header = header.call_method0("header")?.extract::<Vec<u8>>()?;
        let decoded = header.first_chunk().map(Offload::decode);
        let Some(Ok(offload)) = decoded else {
            let text = "the offload contradicts itself: gso needs a gso_size and needs_csum, ecn needs TCP";
            return Err(PyValueError::new_err(text));
        };
        self.push_frame(&frame, offload.as_ref(), ring)
    }

    fn push_frame(&self, frame: &Bound<'_, PyAny>, offload: Option<&Offload>, ring: usize) -> PyResult<bool> {
        with_bytes(frame, |bytes| {
            let longest = if offload.is_some() { self.longest } else { self.longest.min(MAX_FRAME) };
            self.check_length(bytes.len(), longest)?;
            let mut state = self.own_state()?;
            let tx = self.ring(&mut state, ring)?;
            Ok(if self.shape.offload { tx.push_offloaded(bytes, offload) } else { tx.push(bytes) })
        })?
    }

    fn check_length(&self, len: usize, longest: usize) -> PyResult<()> {
        if len <= longest {
            return Ok(());
        }
        let name = &self.name;
        let text = format!("a frame of {len} bytes does not fit into the rings of {name}: at most {longest}");
        Err(PyValueError::new_err(text))
    }

    fn ring<'a>(&self, state: &'a mut State, ring: usize) -> PyResult<&'a mut TxRing> {
        state.client(&self.name)?.tx_rings().get_mut(ring).ok_or_else(|| {
            let (name, rings) = (&self.name, self.shape.tx_rings);
            PyIndexError::new_err(format!("ring {ring} is not possible: {name} has {rings} transmit rings, from 0"))
        })
    }

    /// Queues parts of `area` from the one with the number `from` on, like `push_batch`.
    fn push_parts(&self, area: &Area, parts: &Bound<'_, PyList>, from: usize, ring: usize) -> PyResult<usize> {
        // Of an offload port, a part begins with the header.
        let longest = if self.shape.offload { self.longest + PREFIX_BYTES } else { self.longest.min(MAX_FRAME) };
        let mut next = from;
        while let Ok(item) = parts.get_item(next) {
            let (start, end) = item.extract::<(usize, usize)>()?;
            self.check_length(end.saturating_sub(start), longest)?;
            let mut state = self.own_state()?;
            if !area.push_to(self.ring(&mut state, ring)?, start..end)? {
                break;
            }
            next += 1;
        }
        Ok(next)
    }

    /// Sends what `push` queues of `batch`, from `start` on: `push` gets the number of the next one, and returns that of the next one
    /// then. Returns how many were sent.
    fn send_all(
        &self,
        py: Python<'_>,
        batch: &Bound<'_, PyList>,
        start: usize,
        timeout: Option<f64>,
        push: impl Fn(usize) -> PyResult<usize>,
    ) -> PyResult<usize> {
        let mut deadline = None;
        let mut next = start;
        loop {
            let before = next;
            let pushed = push(next);
            // Also what was queued before an error.
            self.flush()?;
            next = pushed?;
            if next >= batch.len() {
                return Ok(next - start);
            }
            let deadline = match deadline {
                Some(deadline) => deadline,
                None => *deadline.insert(Deadline::after(timeout)?),
            };
            if next == before && deadline.left().is_some() {
                // A frame of several slots finds room, but too little; or another ring has the room.
                py.detach(|| std::thread::sleep(TOO_LITTLE));
                py.check_signals()?;
            }
            if deadline.left().is_none() || !self.wait(py, Wanted::Room, deadline)? {
                if let Some(reason) = self.own_state()?.ended() {
                    return Err(PortEnded::new_err(reason));
                }
                return Ok(next - start);
            }
        }
    }

    /// Publishes what is queued.
    fn flush(&self) -> PyResult<()> {
        if let Some(client) = &mut self.own_state()?.client {
            client.flush();
        }
        Ok(())
    }

    /// Queues frames of `batch` from `from` on, until one does not fit. Returns the next one's number.
    fn push_batch(&self, batch: &Bound<'_, PyList>, from: usize, ring: usize) -> PyResult<usize> {
        let mut next = from;
        // The list may change: reading a frame can run Python code.
        while let Ok(item) = batch.get_item(next) {
            if !self.push(&item, ring)? {
                break;
            }
            next += 1;
        }
        Ok(next)
    }
}

#[pymethods]
impl Port {
    #[new]
    #[pyo3(signature = (name, socket, tx_rings, rx_rings, tx_slots, rx_slots, buffer_size, spare_buffers, offload, memory))]
    #[expect(clippy::too_many_arguments, reason = "the constructor that `ringway.Port` calls")]
    fn new(
        py: Python<'_>,
        name: String,
        socket: PathBuf,
        tx_rings: u16,
        rx_rings: u16,
        tx_slots: u32,
        rx_slots: u32,
        buffer_size: u32,
        spare_buffers: u32,
        offload: bool,
        memory: Option<&Bound<'_, Memory>>,
    ) -> PyResult<Port> {
        let shape =
            Shape { tx_rings, rx_rings, tx_slots, rx_slots, buffer_size, extra_buffers: spare_buffers, offload };
        let memory = memory.map(|memory| memory.get().own()).transpose()?;
        let attached = py.detach(|| match memory {
            Some(memory) => Client::attach_with_memory(socket, &name, shape, &mut memory.lock()),
            None => Client::attach_with_buffers(socket, &name, shape),
        });
        let (mut client, spares) = attached.map_err(|error| attach_error(&error))?;
        let mac = client.mac();
        let prefix = if offload { PREFIX_BYTES } else { 0 };
        let longest = client.tx_rings().first().map_or(0, |ring| ring.longest() - prefix);
        let state = State {
            client: Some(client),
            ended: None,
            closed: Flag::new()?,
            sleepers: Vec::new(),
            first_ring: 0,
            readable: None,
            writable: None,
        };
        Ok(Port {
            name,
            mac,
            shape,
            longest,
            pool: Pool::new(spares),
            owner: Process::this(),
            state: Mutex::new(state),
        })
    }

    /// Sends a frame or a list of frames from `start` on, and returns the number that was sent.
    fn send(
        &self,
        py: Python<'_>,
        frames: &Bound<'_, PyAny>,
        start: usize,
        timeout: Option<f64>,
        ring: usize,
    ) -> PyResult<usize> {
        let single = has_bytes(frames) || frames.is_instance_of::<PyTuple>();
        let batch = if single { PyList::new(py, [frames])? } else { frames.cast::<PyList>()?.clone() };
        self.send_all(py, &batch, start, timeout, |next| self.push_batch(&batch, next, ring))
    }

    /// Sends parts of an area, pairs of their start and end, as frames. Returns the number that was sent.
    fn send_from(
        &self,
        py: Python<'_>,
        area: &Bound<'_, Area>,
        parts: &Bound<'_, PyList>,
        timeout: Option<f64>,
        ring: usize,
    ) -> PyResult<usize> {
        self.send_all(py, parts, 0, timeout, |next| self.push_parts(area.get(), parts, next, ring))
    }

    /// Waits until the switch has taken all frames that were sent. Returns false when `timeout` has passed first.
    fn wait_sent(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.wait(py, Wanted::Sent, Deadline::after(timeout)?)
    }

    /// Receives frames as views.
    fn recv<'py>(&self, py: Python<'py>, max: usize, timeout: Option<f64>) -> PyResult<Bound<'py, PyList>> {
        let frames = self.receive(py, max, timeout)?;
        let list = PyList::empty(py);
        for frame in frames {
            list.append(frame.view(py)?)?;
        }
        Ok(list)
    }

    /// Receives one frame as a view; `None` when `timeout` has passed first.
    fn recv_one<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(frame) = self.receive(py, 1, timeout)?.pop() else { return Ok(None) };
        Ok(Some(frame.view(py)?.into_any()))
    }

    /// Receives pairs of a view and its offload header, `None` where the frame needs no offload.
    fn recv_offloaded<'py>(&self, py: Python<'py>, max: usize, timeout: Option<f64>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for frame in self.receive(py, max, timeout)? {
            let header = frame.prefix().first_chunk();
            let offload = header.and_then(|header| Offload::decode(header).ok().flatten());
            let header = offload.map(|offload| PyBytes::new(py, &Offload::encode(Some(&offload))));
            list.append((frame.view(py)?, header))?;
        }
        Ok(list)
    }

    /// Receives frames as `bytes`.
    fn recv_bytes<'py>(&self, py: Python<'py>, max: usize, timeout: Option<f64>) -> PyResult<Bound<'py, PyList>> {
        let mut deadline = None;
        let prefix = self.prefix();
        // All frames behind each other: no Python object is made while the port is locked.
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        loop {
            let taken = self.own_state()?.copy(&self.name, max.min(self.most_received()), |frame| {
                bytes.extend_from_slice(frame.get(prefix..).unwrap_or_default());
                ends.push(bytes.len());
            })?;
            if taken > 0 || max == 0 {
                break;
            }
            let deadline = match deadline {
                Some(deadline) => deadline,
                None => *deadline.insert(Deadline::after(timeout)?),
            };
            if !self.wait(py, Wanted::Frames, deadline)? {
                break;
            }
        }
        let list = PyList::empty(py);
        let mut start = 0;
        for end in ends {
            list.append(PyBytes::new(py, &bytes[start..end]))?;
            start = end;
        }
        Ok(list)
    }

    /// The descriptor that is readable while there are frames.
    fn fileno(&self) -> PyResult<RawFd> {
        let mut state = self.own_state()?;
        let state = &mut *state;
        let client = state.client.as_mut().ok_or_else(|| closed(&self.name))?;
        if let Some(watch) = &state.readable {
            return Ok(watch.fd());
        }
        let watch = state.readable.insert(Watch::new(client)?);
        watch.arm(|| client.want_rx());
        Ok(watch.fd())
    }

    /// The descriptor that is readable when there may be room to send, after `arm_writable`.
    fn writable_fileno(&self) -> PyResult<RawFd> {
        let mut state = self.own_state()?;
        let state = &mut *state;
        let client = state.client.as_ref().ok_or_else(|| closed(&self.name))?;
        if let Some(watch) = &state.writable {
            return Ok(watch.fd());
        }
        Ok(state.writable.insert(Watch::new(client)?).fd())
    }

    /// Asks for a call when there is room; returns true when there is room already, or nothing to wait for.
    fn arm_writable(&self) -> PyResult<bool> {
        let mut state = self.own_state()?;
        let state = &mut *state;
        let (Some(watch), Some(client)) = (&mut state.writable, &mut state.client) else { return Ok(true) };
        Ok(watch.arm(|| client.want_tx()))
    }

    /// Detaches. With `force`, also while there are views: they stay valid. Does nothing in a child of the process that
    /// made the port.
    fn close(&self, force: bool) -> PyResult<()> {
        if self.is_inherited() {
            return Ok(());
        }
        let alive = self.pool.alive();
        let mut state = self.state();
        if state.client.is_none() {
            return Ok(());
        }
        if alive > 0 && !force {
            let name = &self.name;
            let text = format!("cannot close {name}: {alive} received frames are in use (release their views first)");
            return Err(PyBufferError::new_err(text));
        }
        state.closed.set(true);
        state.client = None;
        state.readable = None;
        state.writable = None;
        state.sleepers.clear();
        Ok(())
    }

    /// True after `close`.
    #[getter]
    fn closed(&self) -> bool {
        self.state().client.is_none()
    }

    /// Why the switch has ended the port, or `None`.
    #[getter]
    fn ended(&self) -> Option<String> {
        self.state().ended()
    }

    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The address that is bound to the port.
    #[getter]
    fn mac(&self) -> Option<String> {
        let [a, b, c, d, e, f] = self.mac;
        (self.mac != [0; 6]).then(|| format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"))
    }

    /// Received frames that have views.
    #[getter]
    fn held(&self) -> usize {
        self.pool.alive()
    }

    #[getter]
    fn max_frame(&self) -> usize {
        self.longest
    }
}
