//! The opener: does for the switch what that may not do itself, if somebody has allowed it.
//!
//! - `allowed`: what the configuration file names, and what administrators have granted since. `room`: how much that may be in the runtime directory.

mod allowed;
mod room;

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use parking_lot::Mutex;
use ringway_config::Host;
use ringway_config::kinds::finding::{answer_about_device, answer_about_namespace};
use ringway_keeper::NotStarted;
use ringway_keeper::opener::{Answered, Ask, Kind, Refusal, Reply, Said, open_here, open_named, real, run};
use ringway_port::{answer_about_buffer, answer_about_socket, start_closer_for_switch};
use ringway_port_device::answer_about_tags;
use ringway_port_vhost_user::answer_about_record;

use allowed::{Allowed, Thing};

/// What an opener is for.
#[derive(Debug)]
pub struct Options {
    /// The configuration file.
    pub file: Option<PathBuf>,
    /// The directory for the sockets.
    pub runtime_dir: PathBuf,
    /// What administrators have granted, a line of JSON each. The keeper writes it.
    pub grants: Option<File>,
    /// Makes the command of the closer.
    pub closer: fn() -> Command,
}

/// Is the opener of a switch, until the switch has ended, under the first name before it is asked something, and under the other then.
///
/// # Errors
/// No keeper has started this process.
pub fn open_for_switch(names: [&CStr; 2], options: Options) -> Result<(), NotStarted> {
    let Options { file, runtime_dir, grants, closer } = options;
    let host = Host::here(&runtime_dir);
    let look = move || {
        let grants = grants.as_ref().and_then(|grants| grants.try_clone().ok());
        Allowed::new(file.clone(), host.clone(), grants)
    };
    let (allowed, first) = (Mutex::new(look()), Once::new());
    run(names, move |ask, files| {
        // One that was started ahead may have waited for hours.
        first.call_once(|| {
            let mut allowed = allowed.lock();
            if allowed.is_stale() {
                *allowed = look();
            }
        });
        match ask {
            Ask::Closer => start_closer_for_switch(closer(), files.into_iter().next()),
            _ => answer(&allowed, &ask, files),
        }
    })
}

fn answer(allowed: &Mutex<Allowed>, ask: &Ask, files: Vec<OwnedFd>) -> Answered {
    let file = files.into_iter().next();
    let judge = |thing: Thing<'_>| {
        let refused = |text| Refusal { text, errno: None, kind: Some(Kind::PermissionDenied) };
        allowed.lock().judge(thing).map_err(refused)
    };
    let take_room = |path: &Path| {
        let refused = |text| Refusal { text, errno: None, kind: None };
        allowed.lock().take_room(path).map_err(refused)
    };
    let about_socket = |ask: Ask, socket| {
        let keeper = allowed.lock().keeper_socket();
        answer_about_socket(&ask, socket, &keeper)
    };
    match ask {
        Ask::Bind { path, access } => {
            let path = judge(Thing::Listener(&real(path)))?;
            take_room(&path)?;
            about_socket(Ask::Bind { path, access: access.clone() }, file)
        }
        Ask::Remove { path, identity } => {
            let path = judge(Thing::Bound(&real(path)))?;
            about_socket(Ask::Remove { path, identity: *identity }, file)
        }
        Ask::Connect { path } => {
            let path = judge(Thing::Peer(&real(path)))?;
            about_socket(Ask::Connect { path }, file)
        }
        Ask::Read { path } => {
            let path = real(path);
            let is_own = allowed.lock().is_own(&path);
            let path = judge(Thing::File(&path))?;
            // Who can write to the folder of the configuration is an administrator.
            let file = if is_own { open_here(&path) } else { open_named(&path) }.map_err(|why| Refusal::from(&why))?;
            Ok(Reply { said: Said::Done, files: vec![file.into()] })
        }
        Ask::ReadState { older } => {
            let (state, _) = allowed.lock().kept();
            let file = state.open_to_read(*older).map_err(|why| Refusal::from(&why))?;
            Ok(Reply { said: Said::Done, files: vec![file.into()] })
        }
        Ask::LockState => {
            let (state, _) = allowed.lock().kept();
            let refused = |text| Refusal { text, errno: None, kind: Some(Kind::AddrInUse) };
            let lock = state.lock_here().map_err(refused)?;
            Ok(Reply { said: Said::Done, files: lock.map(Into::into).into_iter().collect() })
        }
        Ask::RefuseState { older } => {
            let (state, _) = allowed.lock().kept();
            state.put_aside(*older).map(|path| Said::Aside(path).into()).map_err(|why| Refusal::from(&why))
        }
        Ask::State => write_state(allowed, file).map(|()| Said::Done.into()).map_err(|why| Refusal::from(&why)),
        Ask::Record { path, size } => {
            let path = judge(Thing::Record(&real(path)))?;
            take_room(&path)?;
            answer_about_record(&Ask::Record { path, size: *size })
        }
        Ask::EndRecord { path, identity, keep } => {
            let path = judge(Thing::Record(&real(path)))?;
            answer_about_record(&Ask::EndRecord { path, identity: *identity, keep: *keep })
        }
        Ask::Device { port, keys, only, left } => {
            let invalid = || Refusal::from(&io::Error::from(io::ErrorKind::InvalidInput));
            let wanted = allowed::port(port, keys).ok_or_else(invalid)?;
            judge(Thing::Device(&wanted))?;
            answer_about_device(wanted.settings.own(), &wanted.mac, only.as_ref(), left.clone(), file)
        }
        Ask::Closer => Err(Refusal::from(&io::Error::from(io::ErrorKind::Unsupported))),
        Ask::SendBuffer { bytes } => answer_about_buffer(*bytes, file),
        Ask::Tags { .. } => answer_about_tags(ask, file),
        Ask::Namespace { name } => {
            judge(Thing::Namespace(name))?;
            Ok(answer_about_namespace(name).into())
        }
        #[cfg(feature = "programs")]
        Ask::FindCompiler => ringway_forwarding::find_compiler_for_switch(),
        #[cfg(feature = "programs")]
        Ask::Compile => ringway_forwarding::start_compiler_for_switch(),
        #[cfg(not(feature = "programs"))]
        Ask::FindCompiler | Ask::Compile => Err(Refusal::from(&io::Error::from(io::ErrorKind::Unsupported))),
    }
}

/// Replaces the state file by this memory file, or removes it.
fn write_state(allowed: &Mutex<Allowed>, contents: Option<OwnedFd>) -> io::Result<()> {
    // One after the other, and nothing else waits for the disk.
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock();
    let (file, grants) = allowed.lock().kept();
    file.put_grants(contents.is_some().then_some(&*grants).filter(|grants| !grants.is_empty()))?;
    file.answer(contents)
}
