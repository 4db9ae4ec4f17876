//! The virtio-net driver against the tests' own back end, over a real vhost-user socket.

mod backend;
mod device;
mod dialogue;
mod misuse;
mod rings;
mod scene;
mod wake;
