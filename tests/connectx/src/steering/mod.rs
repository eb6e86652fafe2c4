//! Flow tables, groups and entries, and what becomes of a packet in them.
