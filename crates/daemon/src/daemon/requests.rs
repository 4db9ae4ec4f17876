//! What users ask of the daemon: ports, buckets and switches are added, changed and removed, and the file is read again.

use ringway_capture::{Options, Reader};
use ringway_config::Config;
use ringway_config::diff::Action;
use ringway_config::keys::{Name, Node, PortRef, Value};

use super::outliving::keep_configuration;
use super::programs::LoadedProgram;
use super::refused::Refused;
use super::running::{self, Running};
use super::state::{Daemon, unknown};

impl Daemon {
    /// Starts the pollers. [`Daemon::configure`] does the rest.
    ///
    /// # Errors
    /// A CPU or a thread cannot be had.
    pub fn start(running: Running) -> Result<Self, Refused> {
        let target = running.config.clone();
        let mut daemon = Self::new(running)?;
        daemon.running.config =
            Config { engine: target.engine, attach: target.attach, memory: target.memory, ..Config::default() };
        if !ringway_memory::can_limit_holes() {
            tracing::warn!(
                "userfaultfd(2) cannot be had: front ends can make the daemon allocate memory (holes is without effect)"
            );
        }
        daemon.bound_memory();
        Ok(daemon)
    }

    /// Makes the switches of the configuration, with what commands had changed, and opens its devices and sockets.
    ///
    /// # Errors
    /// A device or a socket cannot be had; programs have to be loaded first.
    pub fn configure(&mut self) -> Result<Vec<String>, Refused> {
        let done = self.apply(self.running.at_start().clone(), "")?;
        self.is_starting = false;
        self.open_paused_later();
        Ok(done)
    }

    /// Adds a port, or keeps a dynamic one after its client has gone.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn add_port(&mut self, port: &PortRef, keys: &Node) -> Result<Vec<String>, Refused> {
        if port.pipe.is_some() {
            let what = format!("\"{port}\" is an end of a pipe: the program that opens it makes it");
            return Err(Refused::Conflict(what));
        }
        let target = self.running.with_port(port, keys, &self.dynamic_ports(&self.running.config))?;
        self.apply(target, &format!("port.{}.", port.name))
    }

    /// Changes a configured or a dynamic port. A change of a dynamic port lasts until its client detaches.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn set_port(&mut self, port: &PortRef, keys: &Node) -> Result<Vec<String>, Refused> {
        let (switch, name) = self.resolve(port)?;
        if self.is_configured(&switch, &name) {
            let target = self.running.with_change(&name, keys)?;
            return self.apply(target, &format!("port.{name}."));
        }
        let Some(live) = self.switches.get(&switch) else { return Ok(Vec::new()) };
        let Some(old) = live.ports().get(&name).map(|port| port.settings.clone()) else { return Ok(Vec::new()) };
        let new = running::changed(&old, keys)?;
        let before = self.dynamic_ports(&self.running.config);
        let mut after = before.clone();
        after.insert((switch.clone(), name.clone()), new.clone());
        self.running.check(&before, &self.running.config, &after, &format!("port.{switch}:{name}."))?;
        if new == old {
            return Ok(Vec::new());
        }
        let change = Action::ChangePort { name: name.clone(), from: Box::new(old), to: Box::new(new) };
        let mut steps = self.carry_out(self.running.config.clone(), &[change], Vec::new())?;
        self.keep_changed((switch.clone(), name.clone()));
        let keep = format!("ringway port add {switch}:{name} kind=process");
        steps[0] = format!("changed port {name} until its client goes; to keep it so: {keep}");
        Ok(steps)
    }

    /// Removes a configured or a dynamic port, or closes an end of a pipe, and tells its clients why.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn delete_port(&mut self, port: &PortRef) -> Result<Vec<String>, Refused> {
        if let Some(pipe) = &port.pipe {
            let end = self.resolve_end(port, pipe)?;
            self.close_end(&end, "the end of the pipe was deleted");
            return Ok(vec![format!("closed {end}")]);
        }
        let (switch, name) = self.resolve(port)?;
        if self.is_configured(&switch, &name) {
            let target = self.running.without_port(&name)?;
            let changes = self.apply(target, &format!("port.{name}."))?;
            self.forget_defects(&(switch, name));
            return Ok(changes);
        }
        self.forget_defects(&(switch.clone(), name.clone()));
        let Some(live) = self.switches.get(&switch).and_then(|live| live.ports().get(&name)) else {
            return Ok(vec![format!("removed port {name}")]);
        };
        let removal = Action::RemovePort(name, live.settings.clone());
        self.carry_out(self.running.config.clone(), &[removal], Vec::new())
    }

    /// Makes a bucket, or replaces all its settings while its ports send.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn set_bucket(&mut self, name: &Name, keys: &Node) -> Result<Vec<String>, Refused> {
        let target = self.running.with_bucket(name, keys)?;
        self.apply(target, &format!("bucket.{name}."))
    }

    /// Removes a bucket that no port uses.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn delete_bucket(&mut self, name: &Name) -> Result<Vec<String>, Refused> {
        let buckets = &self.running.config.buckets;
        if !buckets.contains_key(name) {
            return Err(unknown("bucket", name, buckets.keys()));
        }
        // `apply` finds the dynamic ports that use the bucket.
        if let Some((port, _)) = self.running.config.ports.iter().find(|(_, port)| port.draws_on(name)) {
            let what = format!(
                "bucket \"{name}\" is part of a limit of port \"{port}\": change that first, with \"port set\""
            );
            return Err(Refused::Conflict(what));
        }
        let target = self.running.without_bucket(name);
        self.apply(target, &format!("bucket.{name}."))
    }

    /// Changes a configured or a dynamic switch. A dynamic switch becomes a configured one.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn set_switch(&mut self, name: &Name, keys: &Node) -> Result<Vec<String>, Refused> {
        let configured = self.running.config.switches.get(name);
        let Some(old) = configured.or_else(|| self.switches.get(name).map(|live| &live.settings)) else {
            return Err(unknown("switch", name, self.switches.keys()));
        };
        let is_dynamic = configured.is_none();
        let target = self.running.with_switch(name, old, keys)?;
        let is_set_again = names(keys, "forwarding") && old.forwarding.program().is_some();
        if target.switches.get(name) == Some(old) && !is_set_again {
            return Ok(Vec::new());
        }
        if is_set_again {
            self.programs.reload(name);
        }
        let changes = self.apply(target, &format!("switch.{name}."))?;
        Ok(if is_dynamic {
            vec![format!("changed switch {name}, which now stays without ports, too")]
        } else {
            changes
        })
    }

    /// Returns the forwarding program of a switch.
    ///
    /// # Errors
    /// There is none.
    pub fn program(&self, name: &Name) -> Result<LoadedProgram, Refused> {
        let Some(switch) = self.switches.get(name) else {
            return Err(unknown("switch", name, self.switches.keys()));
        };
        let missing = || {
            let Some(keys) = switch.settings.forwarding.program() else {
                return format!("switch \"{name}\" has no forwarding program: \"switch set\" loads one");
            };
            match self.programs.missing.why(name, keys) {
                Some(why) => format!(
                    "the forwarding program of switch \"{name}\" is missing: {why}; put a module there that can be loaded, or name another \
                     one with \"switch set\""
                ),
                None => {
                    let path = keys.program.display();
                    format!("the forwarding program {path} of switch \"{name}\" is still being loaded: try again")
                }
            }
        };
        switch.program().cloned().ok_or_else(|| Refused::Conflict(missing()))
    }

    /// Reads the configuration file again.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn reload(&mut self) -> Result<Vec<String>, Refused> {
        let reread = self.running.reread(&self.dynamic_ports(&self.running.config))?;
        self.programs.reload_changed();
        self.programs.missing.ask();
        let mut changes = self.apply(reread.merged.config.clone(), "")?;
        keep_configuration(&self.keeper, &reread.text);
        let contradictions = self.running.reloaded(reread);
        for said in contradictions {
            tracing::warn!("{said}");
            changes.push(said);
        }
        changes.extend(self.restore_sockets());
        Ok(changes)
    }

    /// Starts a capture of a port. The port may be one without a client at present. `options` takes the name of the interface.
    /// Returns the capture's number and its reader.
    ///
    /// # Errors
    /// There is no such port, there are too many captures, or the kernel refuses.
    pub fn capture(
        &mut self,
        port: &PortRef,
        options: impl FnOnce(String) -> Options,
    ) -> Result<(u64, Reader), Refused> {
        let (switch, port) = self.resolve(port)?;
        let options = options(format!("{switch}:{port}"));
        let started = self.captures.start(switch, port, &options)?;
        self.publish();
        Ok(started)
    }

    /// Ends a capture. Its reader can still read what was captured before.
    ///
    /// # Errors
    /// There is no capture of this number.
    pub fn end_capture(&mut self, id: u64) -> Result<Vec<String>, Refused> {
        let port = self.captures.end(id)?;
        self.publish();
        Ok(vec![format!("ended capture {id} of port {port}")])
    }

    /// Closes every port. Sockets and devices are gone once this has settled.
    pub fn end(&mut self) {
        self.is_ending = true;
        for switch in std::mem::take(&mut self.switches).into_values() {
            let front_ends = switch.ports().values().filter_map(|live| live.front_end.clone());
            front_ends.for_each(|front_end| self.close_front_end(front_end));
        }
        self.retries.clear();
        self.reopening.clear();
        self.publish();
    }
}

/// Returns true if the keys have this one.
fn names(keys: &Node, key: &str) -> bool {
    matches!(&keys.value, Value::Table(entries) if entries.iter().any(|entry| entry.key == key))
}
