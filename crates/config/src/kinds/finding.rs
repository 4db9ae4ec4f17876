//! Network devices of a switch without privileges: the opener finds them, and the switch makes ports of their descriptors.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ringway_keeper::opener::{Answered, Ask, Place, Refusal, Reply, Said};
use ringway_port_device::Found;
use rustix::fs::{PROC_SUPER_MAGIC, fstatfs, readlink};

use super::contract::{CannotOpen, End, Finding, Named, Namespace, Opening, PortKind, Process};
use super::netns;
use crate::keys::{Mac, differing};

/// Longest wait for the opener. The daemon gives up before.
const FOUND_WITHIN: Duration = Duration::from_secs(600);

/// Opens the device of a port of kind `K`: here, or by the opener. `here` does both halves at once; `made` makes a port of what was found, unless it has to be
/// opened anew.
///
/// # Errors
/// It cannot be opened.
pub fn open_device<K: Named, P: Send + 'static>(
    settings: &K,
    at: &Opening<'_>,
    netns: Option<&str>,
    here: impl FnOnce() -> io::Result<P> + Send + 'static,
    made: impl Fn(Found) -> io::Result<Option<P>>,
) -> Result<(P, Option<Namespace>), CannotOpen> {
    let failed = |why: io::Error| CannotOpen { what: why.to_string(), why };
    // Those of this name, in whatever namespace.
    let End::Device { device, .. } = settings.end() else {
        return Err(failed(io::Error::other("it has no network device")));
    };
    let mut left = at.keeper.left(&format!("{}/{device} ", K::NAME));
    loop {
        let Some(found) = ask(settings, at, std::mem::take(&mut left)) else {
            return netns::inside(netns, at.namespace.clone(), move || here().map_err(failed));
        };
        let (found, namespace) = found.map_err(failed)?;
        // What a predecessor left is no obstacle the second time.
        if let Some(port) = made(found).map_err(failed)? {
            return Ok((port, namespace));
        }
    }
}

fn ask<K: Named>(settings: &K, at: &Opening<'_>, left: Vec<String>) -> Option<io::Result<(Found, Option<Namespace>)>> {
    let mut keys = differing(settings.values(), K::default().values());
    keys.insert("kind".to_owned(), K::NAME.into());
    keys.insert("switch".to_owned(), "any".into());
    keys.insert("mac".to_owned(), at.macs.iter().map(ToString::to_string).collect());
    let only = at.namespace.as_ref().filter(|namespace| namespace.is_of_process());
    let process = only.and_then(|namespace| namespace.process());
    let files: Vec<_> = process.iter().map(|process| process.file.as_fd()).collect();
    let only = only.map(place_of);
    let ask = Ask::Device { port: at.name.to_string(), keys: keys.into_iter().collect(), only, left };
    let reply = at.keeper.opener().ask(&ask, &files, FOUND_WITHIN)?;
    Some(reply.and_then(|Reply { said, mut files }| {
        let Said::Device { place, note, namespace } = said else {
            return Err(io::Error::other(format!("the opener says {said:?}")));
        };
        let namespace = namespace.map(|place| namespace_of(&place, || files.pop())).transpose()?;
        Ok((Found { place, opened: note.map(|note| (note, files)) }, namespace))
    }))
}

/// Does what the switch asks the opener about the device of a port.
///
/// # Errors
/// It cannot be opened.
pub fn answer_about_device(
    settings: &dyn PortKind,
    macs: &BTreeSet<Mac>,
    only: Option<&Place>,
    left: Vec<String>,
    process: Option<OwnedFd>,
) -> Answered {
    let mut process = process;
    let only = only.map(|place| namespace_of(place, || process.take())).transpose();
    let namespace = only.map_err(|why| Refusal::from(&why))?;
    let found = settings.find(&Finding { macs, namespace, left });
    let (Found { place, opened }, namespace) =
        found.map_err(|CannotOpen { what, why }| Refusal { text: what, errno: None, ..Refusal::from(&why) })?;
    let (note, mut files) = opened.map_or((None, Vec::new()), |(note, files)| (Some(note), files));
    let process = namespace.as_ref().and_then(|namespace| namespace.process());
    let copied = process.map(|process| process.file.try_clone()).transpose().map_err(|why| Refusal::from(&why))?;
    files.extend(copied);
    let namespace = namespace.as_ref().map(place_of);
    Ok(Reply { said: Said::Device { place, note, namespace }, files })
}

/// Does what the switch asks the opener about a network namespace.
pub fn answer_about_namespace(name: &str) -> Said {
    Said::Namespace(netns::here(name).as_ref().map(place_of))
}

fn place_of(namespace: &Namespace) -> Place {
    Place { identity: namespace.number(), process: namespace.process().map(|process| process.number) }
}

fn namespace_of(place: &Place, file: impl FnOnce() -> Option<OwnedFd>) -> io::Result<Namespace> {
    let Place { identity, process } = *place;
    let process = process.map(|number| {
        let file = file().ok_or(io::ErrorKind::InvalidData)?;
        // It may be any file: who names a process's number has this file of it.
        let link = readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new())?;
        let own = format!("/proc/{number}/stat");
        let is_its = link.to_str().is_ok_and(|link| link.strip_suffix(" (deleted)").unwrap_or(link) == own);
        let is_proc = fstatfs(&file)?.f_type == PROC_SUPER_MAGIC;
        if !is_its || !is_proc {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok::<_, io::Error>(Process { number, file: Arc::new(file) })
    });
    Ok(Namespace::with_number(identity, process.transpose()?))
}
