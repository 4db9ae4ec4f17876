//! The opener's side.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::ask::{Ask, BYTES_MOST, Refusal, Reply};
use crate::child::{NotStarted, from_stdin};
use crate::message::{receive_files, send_bytes};

/// Most questions that wait for the kernel at a time.
const THREADS_MOST: usize = 128;

/// Longest time for answers after the end of the switch.
const FINISHED_WITHIN: Duration = Duration::from_secs(1);

/// What came of a question.
pub type Answered = Result<Reply, Refusal>;

/// Answers questions, as a process that a keeper has started, until the switch has ended. Each has a thread of its own. The process has the first name
/// until the first question, and then the other: it may wait for long for a switch that is none yet ([`Role::NextOpener`](crate::Role::NextOpener)).
///
/// # Errors
/// There is no keeper, or it ended.
pub fn run(
    [first, name]: [&CStr; 2],
    answer: impl Fn(Ask, Vec<OwnedFd>) -> Answered + Send + Sync + 'static,
) -> Result<(), NotStarted> {
    // The switch ends by them, and has sockets removed then.
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        let _ = signal_hook::flag::register(signal, Arc::default());
    }
    serve(from_stdin(first)?, name, answer);
    Ok(())
}

fn serve(socket: OwnedFd, name: &CStr, answer: impl Fn(Ask, Vec<OwnedFd>) -> Answered + Send + Sync + 'static) {
    let (socket, answer) = (Arc::new(socket), Arc::new(answer));
    let running = Arc::new(AtomicUsize::new(0));
    let mut bytes = vec![0; BYTES_MOST + 1];
    let mut name = Some(name);
    loop {
        let (length, files) = match receive_files(&*socket, &mut bytes, RecvFlags::empty()) {
            // Without a descriptor for a file, its question is refused.
            Ok((0, _)) | Err(Errno::CONNRESET) => return finish(&running),
            Ok(received) => received,
            Err(why) => {
                tracing::error!("the opener cannot hear the switch: {why}");
                return;
            }
        };
        name.take().into_iter().for_each(|name| _ = rustix::thread::set_name(name));
        let Some((token, ask)) = bytes[..length.min(BYTES_MOST)].split_first_chunk::<8>() else { return };
        let (token, Ok(ask)) = (u64::from_ne_bytes(*token), serde_json::from_slice(ask)) else {
            // Of another version, or forged.
            say(&socket, u64::from_ne_bytes(*token), Err(refusal("the opener does not understand the switch")));
            continue;
        };
        if running.fetch_add(1, Ordering::AcqRel) >= THREADS_MOST {
            running.fetch_sub(1, Ordering::AcqRel);
            say(&socket, token, Err(refusal("the kernel has not answered other questions yet")));
            continue;
        }
        let (to, by, all) = (Arc::clone(&socket), Arc::clone(&answer), Arc::clone(&running));
        let place = Place(all);
        let run = move || {
            let _place = place;
            say(&to, token, by(ask, files));
        };
        if let Err(why) = std::thread::Builder::new().name("open".to_owned()).spawn(run) {
            say(&socket, token, Err(Refusal::from(&why)));
        }
    }
}

/// One of the places for questions. A panic gives it back, too.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Waits for what the switch had asked before its end: files that it wanted to be removed.
fn finish(running: &AtomicUsize) {
    let until = Instant::now() + FINISHED_WITHIN;
    while running.load(Ordering::Acquire) > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn refusal(text: &str) -> Refusal {
    Refusal { text: text.to_owned(), errno: None, kind: None }
}

/// Answers. A switch that has ended does not hear it.
fn say(socket: &OwnedFd, token: u64, answered: Answered) {
    let (said, files) = match answered {
        Ok(Reply { said, files }) => (Ok(said), files),
        Err(refusal) => (Err(refusal), Vec::new()),
    };
    let mut bytes = token.to_ne_bytes().to_vec();
    match serde_json::to_writer(&mut bytes, &said) {
        Ok(()) if bytes.len() <= BYTES_MOST => {}
        _ => return say(socket, token, Err(refusal("the answer is too long"))),
    }
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    if let Err(why) = send_bytes(socket, &bytes, &files, SendFlags::empty())
        && said.is_ok()
        && why != Errno::PIPE
    {
        say(socket, token, Err(Refusal::from(&why.into())));
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::super::ask::Said;
    use super::super::switch::Opener;
    use super::*;

    #[test]
    fn questions_whose_answers_panic_take_no_places_for_ever() {
        let (near, far) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("sockets");
        let answer = |ask, _| match ask {
            Ask::Compile => panic!("as a defect would"),
            _ => Ok(Said::Done.into()),
        };
        std::thread::spawn(move || serve(far, c"opener", answer));
        // Those that panic are not answered.
        let mut bytes = Vec::new();
        serde_json::to_writer(&mut bytes, &Ask::Compile).expect("a question");
        for token in 0..2 * THREADS_MOST as u64 {
            let question = [&token.to_ne_bytes()[..], &bytes].concat();
            send_bytes(&near, &question, &[], SendFlags::empty()).expect("it is sent");
        }
        let opener = Opener::absent();
        opener.is_at(near);
        opener.listen();
        let ask = || opener.ask_done(&Ask::Closer, &[], ringway_testing::PATIENCE).expect("an opener");
        ringway_testing::until("others are answered", || ask().is_ok());
    }
}
