//! Polls counters and ages flows out.
