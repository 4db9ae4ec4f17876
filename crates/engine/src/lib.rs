//! The polling engine: pollers, idle policies, notification, snapshots.
