//! Links at network interfaces, over veth pairs between network namespaces.

mod any;
mod packet;
mod scene;
mod xdp;
