//! Failures that tests ask for at named points of the daemon. The feature `inject` compiles them in, and only the tests of
//! `ringway` have that feature.
//!
//! The variable `RINGWAY_INJECT` names a directory. A file in the directory is named like a point of the daemon and holds
//! what is to happen there: `panic`, `abort`, `overflow` (of the stack: a fault), `hang` (each once, the file is gone then), `panics` (each time), `stall`
//! (until the file is gone), `return`, `call` (a system call that is not allowed, once; a file with the end `.said` has what came of it), or `grant SOCKET LINE`: what a client would do that has taken the switch over, once. It has the opener connect a socket to this
//! path, and sends over it what administrators send to the keeper. A file with the end `.said` has the answer.

#[cfg(feature = "inject")]
pub use with::{at, directories, kills, sides};
#[cfg(not(feature = "inject"))]
pub use without::{at, directories, kills, sides};

/// What a point makes of the function that it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The function continues.
    Pass,
    /// The function returns at once.
    #[cfg_attr(not(feature = "inject"), expect(dead_code, reason = "only injected failures return"))]
    Return,
}

#[cfg(not(feature = "inject"))]
mod without {
    use ringway_port::PortIo;

    use super::Point;

    /// Does nothing.
    #[inline(always)]
    pub fn at(_point: &str) -> Point {
        Point::Pass
    }

    /// Returns none.
    pub fn directories() -> Vec<std::path::PathBuf> {
        Vec::new()
    }

    /// Returns false.
    pub fn kills() -> bool {
        false
    }

    /// Returns the sides unchanged.
    #[inline(always)]
    pub fn sides(_label: &str, sides: PortIo) -> PortIo {
        sides
    }
}

#[cfg(feature = "inject")]
mod with {
    use std::io::ErrorKind;
    use std::os::fd::AsFd;
    use std::path::PathBuf;
    use std::sync::OnceLock;
    use std::time::Duration;

    use ringway_keeper::opener::{Ask, of_process};
    use ringway_port::PortIo;
    use ringway_switch::{
        Armed, Batch, Bell, CallReason, CallResult, Counters, Discarded, Frames, Input, InputCapabilities, Moderation,
        Output, OutputCapabilities, PortFault, WakeOn, giving,
    };
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType};

    use super::Point;

    fn directory() -> Option<&'static PathBuf> {
        static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
        DIRECTORY.get_or_init(|| std::env::var_os("RINGWAY_INJECT").map(PathBuf::from)).as_ref()
    }

    /// The directory, which the switch looks into for as long as it lives.
    pub fn directories() -> Vec<PathBuf> {
        let exists = |path: &PathBuf| path.is_dir();
        let above = |path: &PathBuf| path.parent().map(PathBuf::from);
        directory().and_then(|path| if exists(path) { Some(path.clone()) } else { above(path) }).into_iter().collect()
    }

    /// Tests want to see a system call that was forgotten.
    pub fn kills() -> bool {
        // As users have it, if the test says so.
        directory().is_none_or(|directory| !directory.join("refuses").exists())
    }

    /// Fails as the file of this name says, if there is a file.
    pub fn at(point: &str) -> Point {
        let Some(file) = directory().map(|directory| directory.join(point)) else { return Point::Pass };
        let Ok(what) = std::fs::read_to_string(&file) else { return Point::Pass };
        match what.trim() {
            "panic" => {
                let _ = std::fs::remove_file(&file);
                panic!("injected at {point}")
            }
            "abort" => {
                let _ = std::fs::remove_file(&file);
                std::process::abort();
            }
            "overflow" => {
                let _ = std::fs::remove_file(&file);
                std::hint::black_box(overflow(0));
            }
            "hang" => {
                let _ = std::fs::remove_file(&file);
                loop {
                    std::hint::spin_loop();
                }
            }
            "panics" => panic!("injected at {point}"),
            "call" => {
                let _ = std::fs::remove_file(&file);
                let said = rustix::process::getsid(None);
                std::fs::write(file.with_extension("said"), format!("{said:?}")).expect("the test reads it");
            }
            "return" => return Point::Return,
            grant if grant.starts_with("grant ") => {
                let _ = std::fs::remove_file(&file);
                let said = ask_keeper(grant).unwrap_or_else(|why| format!("refused: {why}"));
                std::fs::write(file.with_extension("said"), said).expect("the test reads it");
            }
            "stall" => {
                while file.exists() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            _ => {}
        }
        Point::Pass
    }

    fn ask_keeper(grant: &str) -> std::io::Result<String> {
        let (path, line) = grant.split_once(' ').and_then(|(_, rest)| rest.split_once(' ')).unwrap_or_default();
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
        let ask = Ask::Connect { path: path.into() };
        of_process().ask_done(&ask, &[socket.as_fd()], Duration::from_secs(300)).ok_or(ErrorKind::NotFound)??;
        rustix::net::send(&socket, format!("ringway-grant001{line}").as_bytes(), SendFlags::empty())?;
        let mut said = [0; 4096];
        let (_, length) = rustix::net::recv(&socket, &mut said[..], RecvFlags::empty())?;
        Ok(String::from_utf8_lossy(&said[..length]).into_owned())
    }

    /// Takes all of the stack.
    #[inline(never)]
    fn overflow(depth: u64) -> u64 {
        let room = std::hint::black_box([depth; 512]);
        if depth == u64::MAX { depth } else { overflow(depth + 1) + room[7] }
    }

    /// PortIo with the points `LABEL.collect`, `LABEL.release`, `LABEL.discard`, `LABEL.deliver`, `LABEL.ring` and `LABEL.give`, where a
    /// directory is named. The last one stands for a bell that gives frames which have waited, in a visit of the port.
    pub fn sides(label: &str, sides: PortIo) -> PortIo {
        if directory().is_none() {
            return sides;
        }
        let point = |step: &str| format!("{label}.{step}");
        let input = Fails { inner: sides.input, points: ["collect", "release", "discard"].map(point) };
        let output = Fails { inner: sides.output, points: [point("deliver"), String::new(), String::new()] };
        let bell = Fails { inner: sides.bell, points: [point("ring"), point("give"), String::new()] };
        PortIo { input: Box::new(input), output: Box::new(output), bell: Box::new(bell), signal: sides.signal }
    }

    /// A side with points.
    struct Fails<T> {
        inner: T,
        points: [String; 3],
    }

    impl Input for Fails<Box<dyn Input>> {
        fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
            let taken = self.inner.collect(batch);
            at(&self.points[0]);
            taken
        }

        fn release(&mut self) {
            at(&self.points[1]);
            self.inner.release();
        }

        fn capabilities(&self) -> InputCapabilities {
            self.inner.capabilities()
        }

        fn rewind(&mut self, frames: usize) {
            self.inner.rewind(frames);
        }

        fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
            at(&self.points[2]);
            self.inner.discard(most)
        }

        fn discard_like(&mut self, addresses: &[u8; 12], most: usize) -> Result<Discarded, PortFault> {
            at(&self.points[2]);
            self.inner.discard_like(addresses, most)
        }

        fn pending(&mut self) -> bool {
            self.inner.pending()
        }

        fn has_frames(&mut self) -> bool {
            self.inner.has_frames()
        }

        fn arm(&mut self, wake_on: WakeOn) -> Armed {
            self.inner.arm(wake_on)
        }

        fn disarm(&mut self) {
            self.inner.disarm();
        }

        fn take_event(&mut self) -> bool {
            self.inner.take_event()
        }

        fn last_frames(&self) -> usize {
            self.inner.last_frames()
        }
    }

    impl Output for Fails<Box<dyn Output>> {
        fn capabilities(&self) -> OutputCapabilities {
            self.inner.capabilities()
        }

        fn queues(&mut self, frames: Frames<'_, '_>) -> Option<&[u8]> {
            self.inner.queues(frames)
        }

        fn room(&mut self, frames: Frames<'_, '_>) -> Option<(usize, usize)> {
            self.inner.room(frames)
        }

        fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
            at(&self.points[0]);
            self.inner.deliver(frames, counters)
        }

        fn note_losses(&mut self, counters: &Counters) {
            self.inner.note_losses(counters);
        }

        fn count_late(&mut self, counters: &Counters) {
            self.inner.count_late(counters);
        }
    }

    impl Bell for Fails<Box<dyn Bell>> {
        fn ring(&self, reason: CallReason) -> CallResult {
            at(&self.points[0]);
            if reason == CallReason::Room {
                giving(|| at(&self.points[1]));
            }
            self.inner.ring(reason)
        }

        fn ring_due(&self, reason: CallReason, due: u64) -> CallResult {
            self.inner.ring_due(reason, due)
        }

        fn moderate(&self, moderation: Moderation) -> bool {
            self.inner.moderate(moderation)
        }

        fn held_until(&self) -> u64 {
            self.inner.held_until()
        }

        fn forget_calls(&self) {
            self.inner.forget_calls();
        }

        fn is_blocked(&self) -> bool {
            self.inner.is_blocked()
        }
    }
}
