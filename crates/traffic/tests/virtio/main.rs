//! The virtio-net driver against a back end of the tests' own, over a real vhost-user socket.

mod backend;
mod device;
mod dialogue;
mod misuse;
mod rings;
mod scene;
mod wake;
