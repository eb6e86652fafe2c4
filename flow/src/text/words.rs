//! Words of a line that are read and written.

/// What introduces the last part of a line.
pub(super) const EXTRA_LABEL: &str = "dp-extra-info:";

/// The letters of TCP flags in a line, in the order in which OVS prints them.
pub(super) const TCP_FLAG_LETTERS: [(&str, u16); 12] = [
    ("S", 0x002),
    ("F", 0x001),
    ("P", 0x008),
    ("R", 0x004),
    ("U", 0x020),
    (".", 0x010),
    ("E", 0x040),
    ("C", 0x080),
    ("N", 0x100),
    ("[200]", 0x200),
    ("[400]", 0x400),
    ("[800]", 0x800),
];
