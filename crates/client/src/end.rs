//! Why the switch has ended a port.
//!
//! The switch keeps the connection until its last message is taken. A child made by `fork` has the same connection, and either process
//! may take the message. So the process that takes it first writes it to memory that both share. Nothing here waits: a thread may be
//! interrupted by a signal handler, or missing in a child, at any place. Two that write at the same time write the same message.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use ringway_abi::attach::{REPLY_BYTES, Reply};
use ringway_memory::Mapping;
use rustix::net::{RecvFlags, recv};

const WORDS: usize = REPLY_BYTES / 4;
/// Bytes of the memory: the message, and whether it is there.
const BYTES: usize = REPLY_BYTES + 4;

/// The switch's last message, once a process has read it.
#[derive(Debug)]
pub(crate) struct End(Box<Mapping>);

impl End {
    pub(crate) fn unknown() -> io::Result<End> {
        Mapping::inherited(BYTES).map(|memory| End(Box::new(memory)))
    }

    /// Returns why the switch has ended the port, if that is known.
    pub(crate) fn known(&self) -> Option<String> {
        let (message, is_there) = self.words().split_at_checked(WORDS)?;
        if is_there.first()?.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut bytes = [0; REPLY_BYTES];
        for (bytes, word) in bytes.chunks_exact_mut(4).zip(message) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        reason(&bytes)
    }

    /// Returns why the switch has ended the port, whose connection is readable. Takes the switch's message.
    pub(crate) fn take(&self, connection: &OwnedFd) -> String {
        let mut message = [0; REPLY_BYTES];
        let peek = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        if let Ok((_, REPLY_BYTES)) = recv(connection, &mut message[..], peek)
            && reason(&message).is_some()
        {
            // Before the message is gone: who finds none finds this.
            self.keep(&message);
            let _ = recv(connection, &mut message[..], RecvFlags::DONTWAIT);
        }
        self.known().unwrap_or_else(|| "the switch is gone".to_owned())
    }

    fn keep(&self, message: &[u8; REPLY_BYTES]) {
        let Some((words, [is_there, ..])) = self.words().split_at_checked(WORDS) else { return };
        for (word, bytes) in words.iter().zip(message.as_chunks().0) {
            word.store(u32::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        is_there.store(1, Ordering::Release);
    }

    fn words(&self) -> &[AtomicU32] {
        self.0.whole().words32().unwrap_or_default()
    }
}

fn reason(message: &[u8; REPLY_BYTES]) -> Option<String> {
    match Reply::decode(message) {
        Ok(Reply::Refused(reason)) => Some(reason),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    use super::*;

    #[test]
    fn the_reason_stays_known_after_its_message_was_taken() {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let end = End::unknown().unwrap();
        assert_eq!(end.known(), None);
        send(&far, &Reply::Refused("the port was removed".to_owned()).encode(), SendFlags::empty()).unwrap();
        drop(far);
        assert_eq!([end.take(&near), end.take(&near)], ["the port was removed"; 2]);
        assert_eq!(recv(&near, &mut [0; REPLY_BYTES][..], RecvFlags::DONTWAIT), Ok((0, 0)), "the message is taken");
    }

    /// Runs in a process of its own, for its limit.
    #[test]
    fn a_process_that_may_write_no_file_learns_of_an_end() {
        if std::env::var_os("RINGWAY_TEST_CHILD").is_none() {
            let name = "end::tests::a_process_that_may_write_no_file_learns_of_an_end";
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args([name, "--exact"]).env("RINGWAY_TEST_CHILD", "1").stdout(Stdio::null()).stderr(Stdio::null());
            let status = child.status().unwrap();
            assert!(status.success(), "{status}");
            return;
        }
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, none).unwrap();
        assert_eq!(End::unknown().unwrap().known(), None);
    }

    #[test]
    fn an_end_without_a_reason_or_with_another_message_is_a_switch_that_is_gone() {
        let messages: [&[u8]; 3] = [&[], &[7; REPLY_BYTES], &Reply::SendMemory.encode()];
        for message in messages {
            let (near, far) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
            send(&far, message, SendFlags::empty()).unwrap();
            drop(far);
            let end = End::unknown().unwrap();
            assert_eq!((end.take(&near).as_str(), end.known()), ("the switch is gone", None));
        }
    }
}
