//! One instance of a program: the frames in its memory, and its verdicts.

use std::sync::Arc;
use std::time::Duration;

use ringway_switch::{Judging, Owner, Seen, View};
use wasmtime::{Memory, Store, TypedFunc, WasmParams, WasmResults};

use crate::fault::{Fault, FaultKind};
use crate::layout::Layout;
use crate::limits::{DESCRIPTOR, INTERFACE, START_TIME, VERDICT};
use crate::modules::Module;
use crate::shared::Shared;
use crate::state::{Phase, Sending, State};
use crate::text::{is_out_of_memory, reason};
use crate::ticker::{CallClock, Ticker};
use crate::unacceptable::Unacceptable;

/// Where frames for a program come from.
pub(crate) trait Source {
    /// The port that the frames came from.
    fn from(&self) -> Owner;
    /// Shows `look` the frames from place `first` to before `end`, in order.
    fn each(&self, first: usize, end: usize, look: impl FnMut(Seen<'_>));
}

impl Source for Judging<'_, '_> {
    #[inline]
    fn from(&self) -> Owner {
        Judging::from(self)
    }

    #[inline(always)]
    fn each(&self, first: usize, end: usize, look: impl FnMut(Seen<'_>)) {
        Judging::each(self, first, end, look);
    }
}

/// One instance.
pub(crate) struct Instance {
    store: Store<State>,
    memory: Memory,
    layout: Layout,
    /// The version of the view that the program has seen.
    seen: u64,
    frames: TypedFunc<(i32, i32), ()>,
    ports: Option<TypedFunc<(), ()>>,
    timer: Option<TypedFunc<(), ()>>,
    tell: Option<TypedFunc<i32, i32>>,
    save: Option<TypedFunc<(), ()>>,
    restore: Option<TypedFunc<i32, i32>>,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("number", &self.store.data().number).finish_non_exhaustive()
    }
}

impl Instance {
    /// Starts an instance. May take a second.
    ///
    /// # Errors
    /// Why it does not start.
    pub(crate) fn start(
        module: &Module,
        ticker: &Arc<Ticker>,
        shared: &Arc<Shared>,
        number: usize,
        view: &Arc<View>,
    ) -> Result<Instance, Unacceptable> {
        let mut seed = [0; 8];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
            .map_err(|why| Unacceptable::System(format!("the kernel has no random numbers: {why}")))?;
        let clock = CallClock::new(Arc::clone(ticker));
        let state = State::new(Arc::clone(shared), number, Arc::clone(view), clock, u64::from_ne_bytes(seed));
        let mut store = Store::new(module.pre.module().engine(), state);
        store.limiter(|state| state);
        store.epoch_deadline_callback(|mut context| context.data_mut().clock.tick());
        begin(&mut store, START_TIME);
        let failed = |export: &'static str| {
            move |error: wasmtime::Error| Unacceptable::Failed { export, fault: Fault::of(&error) }
        };
        let instance = module.pre.instantiate(&mut store).map_err(|error| match Fault::of(&error) {
            Fault { kind: FaultKind::Memory, what } => {
                Unacceptable::Memory(format!("the module wants too much: {what}"))
            }
            _ if is_out_of_memory(&error) => {
                Unacceptable::System(format!("there is no memory for an instance: {}", reason(&error)))
            }
            fault => Unacceptable::Failed { export: Phase::Instantiate.export(), fault },
        })?;
        let memory = instance
            .get_memory(&mut store, "memory")
            .ok_or_else(|| Unacceptable::Export("the module does not export \"memory\"".to_owned()))?;
        store.data_mut().memory = Some(memory);
        let interface = typed::<(), i32>(&instance, &mut store, "ringway_interface")?;
        begin(&mut store, START_TIME);
        let version = interface.call(&mut store, ()).map_err(failed("ringway_interface"))?;
        if version != INTERFACE {
            return Err(Unacceptable::Interface(version));
        }
        if let Some(initialize) = optional::<(), ()>(&instance, &mut store, "_initialize") {
            begin(&mut store, START_TIME);
            initialize.call(&mut store, ()).map_err(failed("_initialize"))?;
        }
        let start = typed::<(), i32>(&instance, &mut store, "ringway_start")?;
        store.data_mut().phase = Phase::Start;
        begin(&mut store, START_TIME);
        let answer = start.call(&mut store, ()).map_err(failed("ringway_start"))?;
        if answer != 0 {
            return Err(Unacceptable::Refused(match &store.data().last_line[..] {
                "" => format!("the program refuses to start: ringway_start returned {answer}"),
                line => format!("the program refuses to start: {line}"),
            }));
        }
        store.data_mut().clock.stop();
        let Some(layout) = store.data().layout else {
            return Err(Unacceptable::Refused("ringway_start did not call frames_at".to_owned()));
        };
        Ok(Instance {
            memory,
            layout,
            seen: 0,
            frames: typed(&instance, &mut store, "ringway_frames")?,
            ports: optional(&instance, &mut store, "ringway_ports"),
            timer: optional(&instance, &mut store, "ringway_timer"),
            tell: optional(&instance, &mut store, "ringway_tell"),
            save: optional(&instance, &mut store, "ringway_save"),
            restore: optional(&instance, &mut store, "ringway_restore"),
            store,
        })
    }

    /// Begins a call of the usual length.
    #[inline]
    fn begin(&mut self, phase: Phase) {
        let state = self.store.data_mut();
        state.phase = phase;
        let most = state.clock.usual();
        begin(&mut self.store, most);
    }

    /// Ends a call of the usual length.
    #[inline]
    fn end(&mut self) -> Result<(), Fault> {
        self.store.data_mut().clock.end()
    }

    /// Judges a batch.
    ///
    /// # Errors
    /// The fault of the program.
    #[inline]
    pub(crate) fn judge(&mut self, batch: &mut Judging<'_, '_>) -> Result<(), Fault> {
        if self.seen != batch.view().version() {
            self.see(batch.view())?;
        }
        let (from, count) = (batch.from(), batch.len());
        let sending = Sending { from, now: batch.now(), may_learn: batch.may_learn() };
        self.store.data_mut().sending = Some(sending);
        // All calls of a batch together have the time of one.
        self.begin(Phase::Frames);
        let mut first = 0;
        let judged = loop {
            let frames = (count - first).min(self.layout.capacity);
            if let Err(fault) = self.judge_part(batch, first, frames, from.bits().into()) {
                break Err(fault);
            }
            first += frames;
            if first >= count {
                break Ok(());
            }
        };
        let ended = self.end();
        self.store.data_mut().sending = None;
        judged.and(ended)?;
        let reasons = self.store.data().reasons;
        match batch.drops().iter().skip(reasons).position(|drops| *drops > 0) {
            None => Ok(()),
            Some(beyond) => {
                let what = format!("a verdict names drop reason {}, which is not registered", reasons + beyond);
                Err(Fault::new(FaultKind::Verdict, what))
            }
        }
    }

    /// Shows the program frames of a port and returns its words, which nobody has checked. For at most so many frames as a call takes.
    ///
    /// # Errors
    /// The fault of the program.
    pub(crate) fn judge_alone(
        &mut self,
        view: &Arc<View>,
        frames: &impl Source,
        count: usize,
        now: u32,
    ) -> Result<Vec<u32>, Fault> {
        if self.seen != view.version() {
            self.see(view)?;
        }
        let count = count.min(self.layout.capacity);
        let at = self.layout.verdicts;
        let memory = self.memory.data_mut(&mut self.store);
        if let Some(words) = memory.get_mut(at..at + count * VERDICT) {
            words.fill(0);
        }
        write_frames(memory, &self.layout, frames, 0, count);
        self.store.data_mut().sending = Some(Sending { from: frames.from(), now, may_learn: true });
        self.begin(Phase::Frames);
        let called = self.frames.call(&mut self.store, (count as i32, frames.from().bits().into()));
        self.store.data_mut().sending = None;
        let ended = self.end();
        called.map_err(|error| Fault::of(&error)).and(ended)?;
        let words = self.memory.data(&self.store).get(at..at + count * VERDICT).unwrap_or_default();
        let (words, _) = words.as_chunks::<VERDICT>();
        Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    /// Most frames of a call.
    pub(crate) fn capacity(&self) -> usize {
        self.layout.capacity
    }

    /// Number of drop reasons that the program has registered.
    pub(crate) fn reasons(&self) -> usize {
        self.store.data().reasons
    }

    /// Returns the ports of a set, by index. `None`: the program never set it.
    pub(crate) fn set(&self, number: usize) -> Option<&ringway_switch::PortSet> {
        self.store.data().sets.present.get(number)?.as_ref()
    }

    #[inline]
    fn judge_part(&mut self, batch: &mut Judging<'_, '_>, first: usize, frames: usize, port: i32) -> Result<(), Fault> {
        let Layout { verdicts, .. } = self.layout;
        let words = verdicts..verdicts + frames * VERDICT;
        let memory = self.memory.data_mut(&mut self.store);
        if let Some(words) = memory.get_mut(words.clone()) {
            words.fill(0);
        }
        if frames > 0 {
            write_frames(memory, &self.layout, batch, first, frames);
            self.frames.call(&mut self.store, (frames as i32, port)).map_err(|error| Fault::of(&error))?;
        }
        let sets = &self.store.data().sets.present;
        let words = self.memory.data(&self.store).get(words).unwrap_or_default();
        batch.decide(words, sets).map_err(|bad| {
            let what = format!("a verdict is {:#x}: no such verdict, port or set", bad.word);
            Fault::new(FaultKind::Verdict, what)
        })
    }

    /// Shows the program the ports of the switch, which have changed.
    #[cold]
    fn see(&mut self, view: &Arc<View>) -> Result<(), Fault> {
        self.seen = view.version();
        let state = self.store.data_mut();
        state.view = Arc::clone(view);
        state.sets.follow(view);
        match self.ports.clone() {
            Some(ports) => self.call(Phase::Ports, &ports, ()),
            None => Ok(()),
        }
    }

    #[cold]
    fn call<P: WasmParams, R: WasmResults>(
        &mut self,
        phase: Phase,
        function: &TypedFunc<P, R>,
        arguments: P,
    ) -> Result<R, Fault> {
        self.begin(phase);
        let answer = function.call(&mut self.store, arguments).map_err(|error| Fault::of(&error));
        let ended = self.end();
        answer.and_then(|answer| ended.map(|()| answer))
    }

    /// When the timer fires, in nanoseconds; 0: not.
    #[inline]
    pub(crate) fn timer(&self) -> u64 {
        self.store.data().timer
    }

    /// Fires the timer.
    ///
    /// # Errors
    /// The fault of the program.
    pub(crate) fn fire(&mut self) -> Result<(), Fault> {
        self.store.data_mut().timer = 0;
        match self.timer.clone() {
            Some(timer) => self.call(Phase::Timer, &timer, ()),
            None => Ok(()),
        }
    }

    /// Gives the program a message. Returns `None` if it understands it, otherwise why not.
    ///
    /// # Errors
    /// The fault of the program.
    pub(crate) fn tell(&mut self, message: &str) -> Result<Option<String>, Fault> {
        let Some(tell) = self.tell.clone() else {
            return Ok(Some("the program takes no messages: it does not export \"ringway_tell\"".to_owned()));
        };
        let state = self.store.data_mut();
        state.message = message.as_bytes().to_vec();
        state.last_line.clear();
        let answer = self.call(Phase::Tell, &tell, message.len() as i32);
        let state = self.store.data_mut();
        state.message = Vec::new();
        Ok(match (answer?, &state.last_line[..]) {
            (0, _) => None,
            (answer, "") => Some(format!("the program refuses the message: ringway_tell returned {answer}")),
            (_, line) => Some(format!("the program refuses the message: {line}")),
        })
    }

    /// The program's state, if it saves one.
    ///
    /// # Errors
    /// The fault of the program.
    pub(crate) fn save(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        let Some(save) = self.save.clone() else { return Ok(None) };
        self.store.data_mut().saved.clear();
        self.call(Phase::Save, &save, ())?;
        Ok(Some(std::mem::take(&mut self.store.data_mut().saved)))
    }

    /// Gives the program the state of another. Returns true if it takes it.
    ///
    /// # Errors
    /// The fault of the program.
    pub(crate) fn restore(&mut self, saved: Vec<u8>) -> Result<bool, Fault> {
        let Some(restore) = self.restore.clone() else { return Ok(false) };
        let length = saved.len() as i32;
        let state = self.store.data_mut();
        (state.restored, state.phase) = (saved.into(), Phase::Restore);
        begin(&mut self.store, START_TIME);
        let answer = restore.call(&mut self.store, length).map_err(|error| Fault::of(&error));
        let state = self.store.data_mut();
        state.restored = Arc::default();
        state.clock.stop();
        Ok(answer? == 0)
    }

    /// Bounds calls to a shorter time for a while.
    pub(crate) fn shorten(&mut self) {
        self.store.data_mut().clock.shorten();
    }

    /// Until when calls are bounded to a shorter time, in nanoseconds.
    pub(crate) fn short_until(&self) -> u64 {
        self.store.data().clock.short_until()
    }

    /// Takes over the bound of the instance that this one replaces.
    pub(crate) fn inherit(&mut self, short_until: u64) {
        self.store.data_mut().clock.inherit(short_until);
    }
}

/// Begins a call that may take this much processor time.
#[inline]
fn begin(store: &mut Store<State>, most: Duration) {
    store.set_epoch_deadline(1);
    store.data_mut().clock.begin(most);
}

fn typed<P: WasmParams, R: WasmResults>(
    instance: &wasmtime::Instance,
    store: &mut Store<State>,
    name: &str,
) -> Result<TypedFunc<P, R>, Unacceptable> {
    instance
        .get_typed_func(store, name)
        .map_err(|error| Unacceptable::Export(format!("the export \"{name}\": {error}")))
}

/// An export that need not be there. Its type was checked.
fn optional<P: WasmParams, R: WasmResults>(
    instance: &wasmtime::Instance,
    store: &mut Store<State>,
    name: &str,
) -> Option<TypedFunc<P, R>> {
    instance.get_typed_func(store, name).ok()
}

/// Writes the descriptors and heads of frames.
#[inline]
fn write_frames(memory: &mut [u8], layout: &Layout, batch: &impl Source, first: usize, frames: usize) {
    // Copies of a length that the compiler knows take a few instructions.
    match layout.head_bytes {
        0 => {}
        16 => return write_both::<16>(memory, layout, batch, first, frames),
        32 => return write_both::<32>(memory, layout, batch, first, frames),
        48 => return write_both::<48>(memory, layout, batch, first, frames),
        64 => return write_both::<64>(memory, layout, batch, first, frames),
        80 => return write_both::<80>(memory, layout, batch, first, frames),
        96 => return write_both::<96>(memory, layout, batch, first, frames),
        128 => return write_both::<128>(memory, layout, batch, first, frames),
        bytes => {
            let area = memory.get_mut(layout.heads..layout.heads + frames * bytes).unwrap_or_default();
            let mut places = area.chunks_exact_mut(bytes);
            batch.each(first, first + frames, |frame| {
                if let Some(out) = places.next() {
                    out.copy_from_slice(&frame.head[..bytes]);
                    clear_beyond(out, frame.len);
                }
            });
        }
    }
    if let Some(at) = layout.frames {
        let descriptors = memory.get_mut(at..at + frames * DESCRIPTOR).unwrap_or_default();
        let describe = Describe { port: batch.from().bits(), head_bytes: layout.head_bytes };
        let mut places = descriptors.as_chunks_mut::<DESCRIPTOR>().0.iter_mut();
        batch.each(first, first + frames, |frame| {
            if let Some(out) = places.next() {
                *out = describe.descriptor(&frame);
            }
        });
    }
}

/// Writes heads of `BYTES` bytes, and the descriptors if there are any.
#[inline(never)]
fn write_both<const BYTES: usize>(
    memory: &mut [u8],
    layout: &Layout,
    batch: &impl Source,
    first: usize,
    frames: usize,
) {
    let heads = layout.heads..layout.heads + frames * BYTES;
    let Some(at) = layout.frames else {
        let mut places = memory.get_mut(heads).unwrap_or_default().as_chunks_mut::<BYTES>().0.iter_mut();
        return batch.each(first, first + frames, |frame| {
            if let Some(out) = places.next() {
                out.copy_from_slice(&frame.head[..BYTES]);
                clear_beyond(out, frame.len);
            }
        });
    };
    // The layout was checked: the two areas are within the memory, and apart.
    let Ok([descriptors, heads]) = memory.get_disjoint_mut([at..at + frames * DESCRIPTOR, heads]) else { return };
    let describe = Describe { port: batch.from().bits(), head_bytes: BYTES };
    let mut places = descriptors.as_chunks_mut::<DESCRIPTOR>().0.iter_mut().zip(heads.as_chunks_mut::<BYTES>().0);
    batch.each(first, first + frames, |frame| {
        if let Some((descriptor, out)) = places.next() {
            *descriptor = describe.descriptor(&frame);
            out.copy_from_slice(&frame.head[..BYTES]);
            clear_beyond(out, frame.len);
        }
    });
}

/// Bytes behind the end of a frame are those of an earlier one.
#[inline]
fn clear_beyond(out: &mut [u8], len: usize) {
    if len < out.len() {
        out[len..].fill(0);
    }
}

/// What the descriptors of a batch have in common.
struct Describe {
    port: u16,
    head_bytes: usize,
}

impl Describe {
    #[inline(always)]
    fn descriptor(&self, frame: &Seen<'_>) -> [u8; DESCRIPTOR] {
        let head = self.head_bytes.min(frame.len) as u64;
        let low = frame.len as u64 & 0xffff_ffff | u64::from(self.port) << 32 | u64::from(frame.vlan) << 48;
        let high =
            u64::from(frame.priority()) | u64::from(frame.offload) << 8 | u64::from(frame.segment) << 16 | head << 32;
        (u128::from(low) | u128::from(high) << 64).to_le_bytes()
    }
}
