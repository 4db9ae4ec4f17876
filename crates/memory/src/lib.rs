//! Views over memory that another party writes.
