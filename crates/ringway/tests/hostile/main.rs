//! Bad input: attackers harm a running daemon while two well-behaved ports exchange checked frames. Each attack is
//! counted at the attacker's port with a named reason. The other ports keep their frames, and the daemon returns to its
//! earlier state.
//!
//! One test runs at a time, because each measures a whole daemon.

mod addresses;
mod attacker;
mod bystanders;
mod churn;
mod clients;
mod closer;
mod control;
mod dialogue;
mod e1000;
mod e1000_guests;
mod eventfds;
mod external;
mod files;
mod front_end;
mod given_memory;
mod holders;
mod idle;
mod memory;
mod nested;
mod raw;
mod rings;
mod rtnl;
mod scene;
mod soak;
mod stalls;
mod steady;
mod storms;
mod successors;
mod vhost;
mod vitals;
