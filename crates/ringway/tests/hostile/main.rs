//! Bad input: a running daemon is attacked while two well-behaved ports move checked frames beside the attack. Each attack
//! costs the attacker a counted, named reason; the others keep their frames, and the daemon returns to its state before.
//!
//! One test at a time: each judges a whole daemon.

mod addresses;
mod attacker;
mod bystanders;
mod churn;
mod clients;
mod control;
mod dialogue;
mod e1000;
mod e1000_guests;
mod eventfds;
mod files;
mod front_end;
mod given_memory;
mod idle;
mod memory;
mod raw;
mod rings;
mod scene;
mod soak;
mod steady;
mod storms;
mod vhost;
mod vitals;
