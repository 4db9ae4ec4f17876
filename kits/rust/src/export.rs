//! The exports of a program: [`export!`], and where a program, its frames and its verdicts are in memory.

#![allow(missing_docs)]

use core::cell::UnsafeCell;

use crate::batch::{Batch, Descriptor, Head};
use crate::host;
use crate::memory;
use crate::port::Port;
use crate::program::{Program, Refused, Saved, Start, State};

/// Exports a type that implements [`Program`](crate::Program): `export!(Type);`. If it also implements [`State`](crate::State):
/// `export!(Type, state);`.
#[macro_export]
macro_rules! export {
    ($program:ty) => {
        $crate::export!(@program $program);
    };
    ($program:ty, state) => {
        $crate::export!(@program $program);

        #[no_mangle]
        extern "C" fn ringway_save() {
            RINGWAY_INSTANCE.save();
        }

        #[no_mangle]
        extern "C" fn ringway_restore(length: usize) -> i32 {
            RINGWAY_INSTANCE.restore(length)
        }
    };
    (@program $program:ty) => {
        static RINGWAY_AREA: $crate::exported::Area<
            <$program as $crate::Program>::Head,
            { <$program as $crate::Program>::CAPACITY },
        > = $crate::exported::Area::new();
        static RINGWAY_INSTANCE: $crate::exported::Instance<$program> = $crate::exported::Instance::new();

        #[no_mangle]
        extern "C" fn ringway_interface() -> i32 {
            1
        }

        #[no_mangle]
        extern "C" fn ringway_start() -> i32 {
            RINGWAY_AREA.announce(<$program as $crate::Program>::DESCRIPTORS);
            RINGWAY_INSTANCE.start()
        }

        #[no_mangle]
        extern "C" fn ringway_frames(count: usize, port: u32) {
            RINGWAY_INSTANCE.frames(&RINGWAY_AREA, count, port);
        }

        #[no_mangle]
        extern "C" fn ringway_ports() {
            RINGWAY_INSTANCE.ports();
        }

        #[no_mangle]
        extern "C" fn ringway_timer() {
            RINGWAY_INSTANCE.timer();
        }

        #[no_mangle]
        extern "C" fn ringway_tell(length: usize) -> i32 {
            RINGWAY_INSTANCE.tell(length)
        }
    };
}

/// Where Ringway writes frames and reads verdicts.
pub struct Area<H, const CAPACITY: usize>(UnsafeCell<Arrays<H, CAPACITY>>);

#[repr(C, align(16))]
struct Arrays<H, const CAPACITY: usize> {
    descriptors: [Descriptor; CAPACITY],
    verdicts: [u32; CAPACITY],
    heads: [H; CAPACITY],
}

// SAFETY: Ringway calls an instance from one thread at a time, and writes here only between calls.
unsafe impl<H, const CAPACITY: usize> Sync for Area<H, CAPACITY> {}

impl<H: Head, const CAPACITY: usize> Area<H, CAPACITY> {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Area(UnsafeCell::new(Arrays {
            descriptors: [Descriptor::EMPTY; CAPACITY],
            verdicts: [0; CAPACITY],
            heads: [H::EMPTY; CAPACITY],
        }))
    }

    /// Says once where the arrays are, and whether the program wants descriptors.
    pub fn announce(&self, wants_descriptors: bool) {
        let arrays = self.0.get();
        // SAFETY: no reference to the arrays exists between calls of `frames`.
        unsafe {
            let descriptors = match wants_descriptors {
                true => core::ptr::addr_of_mut!((*arrays).descriptors).cast(),
                false => core::ptr::null_mut(),
            };
            let heads = core::ptr::addr_of_mut!((*arrays).heads);
            let verdicts = core::ptr::addr_of_mut!((*arrays).verdicts);
            host::frames_at(descriptors, heads.cast(), core::mem::size_of::<H>(), verdicts.cast(), CAPACITY);
        }
    }
}

/// The program, once it has started.
pub struct Instance<P>(UnsafeCell<Option<P>>);

// SAFETY: Ringway calls an instance from one thread at a time, and no host function calls back.
unsafe impl<P> Sync for Instance<P> {}

fn code(result: Result<(), Refused>) -> i32 {
    i32::from(result.is_err())
}

impl<P: Program> Instance<P> {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Instance(UnsafeCell::new(None))
    }

    #[allow(clippy::mut_from_ref)]
    fn program(&self) -> Option<&mut P> {
        // SAFETY: each export takes the reference once, and ends before the next is called.
        unsafe { (*self.0.get()).as_mut() }
    }

    pub fn start(&self) -> i32 {
        match P::start(&mut Start::new()) {
            Ok(program) => {
                // SAFETY: no reference to the program exists between calls.
                unsafe { *self.0.get() = Some(program) };
                0
            }
            Err(Refused { .. }) => 1,
        }
    }

    #[inline]
    pub fn frames<const CAPACITY: usize>(&self, area: &Area<P::Head, CAPACITY>, count: usize, port: u32) {
        let count = if count < CAPACITY { count } else { CAPACITY };
        // SAFETY: Ringway writes to the arrays between calls only; this is the only reference to them.
        let arrays = unsafe { &mut *area.0.get() };
        let (descriptors, heads) = (&arrays.descriptors[..count], &arrays.heads[..count]);
        if let Some(program) = self.program() {
            program.frames(Batch::new(Port::new(port as u16), descriptors, heads, &mut arrays.verdicts[..count]));
        }
    }

    pub fn ports(&self) {
        if let Some(program) = self.program() {
            program.ports();
        }
    }

    pub fn timer(&self) {
        if let Some(program) = self.program() {
            program.timer();
        }
    }

    pub fn tell(&self, length: usize) -> i32 {
        let mut buffer = [0; 1024];
        let (program, text) = match (self.program(), buffer.get_mut(..length)) {
            (Some(program), Some(text)) => (program, text),
            _ => return code(Err("a message to this program has at most 1024 bytes".into())),
        };
        // SAFETY: the switch writes at most as many bytes as the buffer has.
        unsafe { host::message(text.as_mut_ptr(), text.len()) };
        code(match core::str::from_utf8(text) {
            Ok(text) => program.tell(text.trim()),
            Err(_) => Err("the message is no UTF-8 text".into()),
        })
    }
}

impl<P: State> Instance<P> {
    pub fn save(&self) {
        if let Some(program) = self.program() {
            program.save(&mut Saved::new());
        }
    }

    pub fn restore(&self, length: usize) -> i32 {
        let (program, state) = match (self.program(), memory::filled(length, 0)) {
            (Some(program), Some(state)) => (program, state),
            _ => return code(Err("no memory for the state of the program before".into())),
        };
        // SAFETY: the switch writes at most as many bytes as the buffer has.
        unsafe { host::restore(0, state.as_mut_ptr(), state.len()) };
        code(program.restore(state))
    }
}
