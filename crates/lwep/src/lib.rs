//! LWEP: reliable messages between programs, by memory and Ethernet frames alone.
