//! Packets taken apart as the device does: outer and inner headers.
