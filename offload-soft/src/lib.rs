//! A NIC in software.
