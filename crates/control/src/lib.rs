//! Configuration, the administration API and the daemon that ties ports, switches and pollers together.
