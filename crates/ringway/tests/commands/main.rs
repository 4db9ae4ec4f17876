//! The commands beside `run`, as users see them.

mod bench;
mod capture;
mod cli;
mod demo;
mod extcap;
mod gen_e1000;
mod gen_vhost;
mod generator;
mod keys;
mod lists;
mod lwep;
mod top;
