//! The C library as programs in C meet it: compiled by `cc`, against a running switch.

mod built;
mod cost;
mod installed;
mod programs;
