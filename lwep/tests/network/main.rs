//! Two endpoints on a network that loses, repeats, reorders, delays and corrupts frames, with time made up by the test.

mod counted;
mod delivery;
mod device;
mod ends;
mod hostile;
mod invariants;
mod late;
mod scene;
mod shares;
mod trains;
