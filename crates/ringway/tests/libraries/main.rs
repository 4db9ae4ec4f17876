//! Programs under the preload library and the library for libpcap programs, and the dialogue that these speak.

mod netmap;
mod netmap_dialogue;
mod pcap;
