//! The client's end of a connection.

use std::time::Duration;

use ringway_api::patience;
use ringway_link::Link;
use ringway_lwep::{Connection, Event, Nanos, Options, Reason, SendError};
use ringway_traffic::Mac;

use super::port::PortArgs;
use super::station::Station;
use crate::context::Context;
use crate::r#gen::{Destination, GenError, parse};

/// Longest wait until both ends have closed the connection.
const CLOSE: Duration = Duration::from_secs(1);

/// Options of every client.
#[derive(Debug, clap::Args)]
pub struct ClientArgs {
    /// Where "ringway lwep serve" runs: SWITCH:PORT, or the address there
    #[arg(long, value_name = "PORT|MAC", value_parser = crate::r#gen::destination)]
    to: Destination,
    /// Time without any answer after which the run fails
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse::positive)]
    timeout: Duration,
    #[command(flatten)]
    pub port: PortArgs,
}

impl ClientArgs {
    /// Returns the server's address.
    pub fn server(&self, context: &Context) -> Mac {
        self.to.resolve(context)
    }

    /// Adapts the options of an endpoint.
    pub fn adapt(&self, options: &mut Options) {
        options.connect_within = self.timeout.as_nanos() as Nanos;
    }
}

/// A connection to a server.
pub struct Client<'s, L> {
    pub station: Station<'s, L>,
    pub connection: Connection,
    to: Mac,
    timeout: Duration,
    /// When the server was heard last.
    heard: Nanos,
    acknowledged: u64,
}

/// What has happened.
pub enum Seen<T> {
    /// A message, and what was made of it.
    Message(T),
    /// The connection is over in good order.
    Closed,
}

impl<'s, L: Link> Client<'s, L> {
    /// Connects to a service.
    pub fn connect(args: &ClientArgs, to: Mac, service: u32, mut station: Station<'s, L>) -> Result<Self, GenError> {
        let now = station.now();
        let connection = station.endpoint.connect(to.0, service, now);
        let connection = connection.map_err(|error| GenError::Usage(format!("--to {to}: {error}")))?;
        let timeout = args.timeout;
        let mut client = Self { station, connection, to, timeout, heard: now, acknowledged: 0 };
        while !client.station.endpoint.status(connection).is_some_and(|status| status.is_open) {
            let now = client.station.now();
            client.poll(now, |_| ())?;
            client.station.pause(now, timeout)?;
            if client.station.is_stopped() {
                return Err(GenError::Failed(format!("stopped before {to} has answered")));
            }
        }
        Ok(client)
    }

    /// Returns what has happened next: `None` if nothing has.
    ///
    /// # Errors
    /// The connection has ended before its time.
    pub fn poll<T>(&mut self, now: Nanos, mut take: impl FnMut(&[u8]) -> T) -> Result<Option<Seen<T>>, GenError> {
        while let Some(event) = self.station.endpoint.poll(now) {
            match event {
                Event::Message { data, .. } => {
                    self.heard = now;
                    return Ok(Some(Seen::Message(take(data))));
                }
                Event::Ended { reason: Reason::Closed, .. } => return Ok(Some(Seen::Closed)),
                Event::Ended { reason, .. } => return Err(self.ended(reason)),
                Event::Connected { .. } => self.heard = now,
                Event::Accepted { .. } | Event::Room { .. } | Event::Finished { .. } => {}
            }
        }
        Ok(None)
    }

    /// Sends a message of any length, in parts as there is room. Returns false if a signal came before all of it was taken.
    ///
    /// # Errors
    /// The connection is over, the message is too long, or the server was not heard for too long.
    pub fn send_long(&mut self, message: &[u8]) -> Result<bool, GenError> {
        loop {
            let now = self.station.now();
            match self.station.endpoint.send_long(self.connection, message, now) {
                Ok(()) => {
                    self.station.endpoint.flush();
                    return Ok(true);
                }
                Err(SendError::Full) => {}
                Err(error) => return Err(self.refused(error)),
            }
            if self.station.is_stopped() {
                return Ok(false);
            }
            self.watch(now)?;
            self.station.pause(now, Duration::MAX)?;
            self.poll(self.station.now(), |_| ())?;
        }
    }

    /// Fails if the server owes something and has not been heard for too long.
    pub fn watch(&mut self, now: Nanos) -> Result<(), GenError> {
        let Some(status) = self.station.endpoint.status(self.connection) else { return Ok(()) };
        if status.acknowledged != self.acknowledged {
            (self.acknowledged, self.heard) = (status.acknowledged, now);
        }
        if now.saturating_sub(self.heard) > self.timeout.as_nanos() as Nanos {
            return Err(GenError::Failed(format!("{} has not answered for {:?}", self.to, self.timeout)));
        }
        Ok(())
    }

    fn ended(&self, reason: Reason) -> GenError {
        let to = self.to;
        let hint = match reason {
            Reason::NobodyListens | Reason::NoAnswer => ": is \"ringway lwep serve\" running there?",
            Reason::Unknown => ": was it started again?",
            _ => "",
        };
        GenError::Failed(format!("connection to {to}: {reason}{hint}"))
    }

    /// Starts the clock of [`Client::watch`]: from now on the server owes an answer.
    pub fn expect(&mut self, now: Nanos) {
        self.heard = now;
    }

    /// Announces the end of what is sent.
    pub fn finish(&mut self) {
        let now = self.station.now();
        // Refused only if the connection is over, which the next event tells.
        let _ = self.station.endpoint.close(self.connection, now);
    }

    /// Closes the connection, and waits until the server has done so, too, or for a while.
    pub fn close(&mut self) {
        self.finish();
        let longest = patience(CLOSE);
        let end = self.station.now() + longest.as_nanos() as Nanos;
        loop {
            let now = self.station.now();
            if now >= end {
                break;
            }
            match self.poll(now, |_| ()) {
                Ok(Some(Seen::Message(()))) => {}
                Ok(Some(Seen::Closed)) | Err(_) => break,
                Ok(None) => {
                    if self.station.pause(now, longest).is_err() {
                        break;
                    }
                }
            }
        }
        self.station.settle();
    }

    /// Returns the error for a message that the endpoint does not take.
    pub fn refused(&self, error: SendError) -> GenError {
        GenError::Failed(format!("connection to {}: {error}", self.to))
    }
}
