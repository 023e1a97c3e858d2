//! The reference device: plain, readable, threaded.
