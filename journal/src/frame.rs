//! The frames that a file of the log is made of: how they are written, and how they are found again in a damaged file.
//!
//! All numbers are little-endian. A file begins with a header: 12 bytes of magic, 2 of version, 2 of [`Contents`], 8 with the
//! number of the file, 8 with the number of its first record, 4 of CRC32C over all that. Frames follow: CRC32C, length and
//! record number, 4 bytes each, and the body. The checksum covers length, record number and body, and begins with the number
//! and the contents of the file, so that a frame is valid in one place only.
//!
//! Records are numbered through all files of changes, and a frame has the lower half of the number: so a record that is
//! missing is noticed wherever it was, and so is a file. A file that holds everything has numbers of its own, from
//! [`EVERYTHING`] on; its header tells the number of the first record in the file that follows it.
//!
//! A reader that meets bytes that are no frame looks for the next place where there is one: the checksum must be right and the
//! number must be one that is still to come. What was written last may be cut off or be zeros after a crash: that is a
//! [torn end](Found::Torn). It is [damage](Found::Damage) if a valid frame follows, or if the bytes are there and are wrong.
//!
//! Version 1 had neither numbers nor a checksum of the header, and the checksum of a frame covered the body alone. It is read.

/// Bytes before the first frame.
pub(super) const HEADER: usize = 36;
/// Bytes before the body of a frame.
pub(super) const FRAME_HEADER: usize = 12;
/// The number of the first record of a file that holds everything.
pub(super) const EVERYTHING: u64 = 1 << 63;
/// No record is longer: what claims to be is none.
pub(super) const LONGEST: usize = 1 << 24;

const MAGIC: [u8; 12] = *b"sluice-flows";
pub(super) const VERSION: u16 = 2;

/// The same of version 1.
const OLD_VERSION: u16 = 1;
const OLD_HEADER: usize = 16;
const OLD_FRAME_HEADER: usize = 8;

/// Records that may be missing between two frames at most: a greater difference of their numbers is a coincidence.
const MOST_MISSING: u32 = 1 << 24;
/// A crash leaves zeros from a boundary between sectors on.
const SECTOR: usize = 512;
/// No record ends with more zeros.
const ZEROS_OF_A_RECORD: usize = 16;

/// What a file of the log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// What has changed since the files before.
    Changes,
    /// All that was wanted at some time: files before it say nothing any more.
    Everything,
}

/// The beginning of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) contents: Contents,
    /// The number of the file, which its name has, too.
    pub(super) number: u64,
    /// Of a file of changes the number of its first record, otherwise that of the file after it.
    pub(super) first: u64,
}

/// What the beginning of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// This, in the form of this version.
    Known(Header),
    /// The header is damaged; the frames behind it tell this. The number of the first record is not known.
    Damaged(Contents),
    /// The file is of version 1.
    Old(Contents),
    /// The file ends within its header.
    Torn,
}

/// Why a file is no log that this agent can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrongHeader {
    NotALog,
    Version(u16),
    Contents(u16),
}

impl Header {
    /// Its bytes.
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..12].copy_from_slice(&MAGIC);
        bytes[12..14].copy_from_slice(&VERSION.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.contents.to_number().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..32]);
        bytes[32..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

impl Contents {
    const fn to_number(self) -> u16 {
        match self {
            Self::Changes => 0,
            Self::Everything => 1,
        }
    }

    const fn of_number(number: u16) -> Option<Self> {
        match number {
            0 => Some(Self::Changes),
            1 => Some(Self::Everything),
            _ => None,
        }
    }
}

impl Beginning {
    /// Of a file with this number in its name.
    pub(super) fn read(file: &[u8], number: u64) -> Result<Self, WrongHeader> {
        let word = |at: usize| number_at::<2>(file, at).map(u16::from_le_bytes);
        let long = |at: usize| number_at::<8>(file, at).map(u64::from_le_bytes);
        let is_log = file.starts_with(&MAGIC);
        let (version, contents) = (word(12).filter(|_| is_log), word(14).and_then(Contents::of_number));
        if let (Some(OLD_VERSION), Some(contents)) = (version, contents)
            && Self::find_damaged(file, number).is_none()
        {
            return Ok(Self::Old(contents));
        }
        let checksum = number_at::<4>(file, 32).map(u32::from_le_bytes);
        let is_whole = file.get(..32).is_some_and(|header| Some(crc32c::crc32c(header)) == checksum);
        if is_whole && let (Some(VERSION), Some(contents)) = (version, contents) {
            let (number, first) = (long(16).unwrap_or_default(), long(24).unwrap_or_default());
            return Ok(Self::Known(Header { contents, number, first }));
        }
        if !is_whole && let Some(contents) = Self::find_damaged(file, number) {
            return Ok(Self::Damaged(contents));
        }
        let is_begun = is_log && file.len() < HEADER && version.is_none_or(|version| version == VERSION);
        match (version, word(14)) {
            _ if is_begun || file.len() < MAGIC.len() && MAGIC.starts_with(file) => Ok(Self::Torn),
            // As after a crash that left the name and not what was written under it.
            _ if file.iter().all(|byte| *byte == 0) => Ok(Self::Torn),
            (Some(OLD_VERSION | VERSION), Some(other)) if contents.is_none() => Err(WrongHeader::Contents(other)),
            (Some(VERSION), _) | (None, _) => Err(WrongHeader::NotALog),
            (Some(other), _) => Err(WrongHeader::Version(other)),
        }
    }

    /// What the file holds, if that is known.
    pub(super) const fn contents(self) -> Option<Contents> {
        match self {
            Self::Known(header) => Some(header.contents),
            Self::Damaged(contents) | Self::Old(contents) => Some(contents),
            Self::Torn => None,
        }
    }

    /// What a file holds whose first frame is valid in a file of this number.
    fn find_damaged(file: &[u8], number: u64) -> Option<Contents> {
        [Contents::Changes, Contents::Everything].into_iter().find(|contents| {
            let form = Form::numbered(number, *contents);
            Frames::first_number(file).is_some_and(|first| form.parse(file, HEADER, first).is_ok())
        })
    }
}

/// How the frames of a file are made.
#[derive(Clone, Copy, Debug)]
enum Form {
    Old,
    /// With record numbers, and checksums that begin with this.
    Numbered(u32),
}

/// Bytes that are no valid frame: why, and where the frame would end if its length is right.
struct NoFrame {
    reason: &'static str,
    length: Option<usize>,
}

impl Form {
    fn numbered(number: u64, contents: Contents) -> Self {
        let seed = crc32c::crc32c(&number.to_le_bytes());
        Self::Numbered(crc32c::crc32c_append(seed, &contents.to_number().to_le_bytes()))
    }

    const fn header(self) -> usize {
        match self {
            Self::Old => OLD_FRAME_HEADER,
            Self::Numbered(_) => FRAME_HEADER,
        }
    }

    /// The frame at a place: the number of its record, and its body. The number is the first one from `expected` on that
    /// ends as the frame says.
    fn parse(self, file: &[u8], at: usize, expected: u64) -> Result<(u64, &[u8]), NoFrame> {
        let short = |length| NoFrame { reason: "the file ends within a record", length };
        let rest = file.get(at..).unwrap_or_default();
        let word = |at: usize| number_at::<4>(rest, at).map(u32::from_le_bytes).ok_or_else(|| short(None));
        let (length_at, checksum_at) = match self {
            Self::Old => (0, 4),
            Self::Numbered(_) => (4, 0),
        };
        let (length, checksum) = (word(length_at)? as usize, word(checksum_at)?);
        if length == 0 || length > LONGEST {
            return Err(NoFrame { reason: "a record has an impossible length", length: None });
        }
        let number = match self {
            Self::Old => expected,
            Self::Numbered(_) => expected + u64::from(word(8)?.wrapping_sub(lower_half(expected))),
        };
        let body = rest.get(self.header()..self.header() + length).ok_or_else(|| short(Some(length)))?;
        if self.checksum(&rest[..self.header() + length]) != checksum {
            return Err(NoFrame { reason: "a record has a wrong checksum", length: Some(length) });
        }
        Ok((number, body))
    }

    /// The checksum of a whole frame.
    fn checksum(self, frame: &[u8]) -> u32 {
        match self {
            Self::Old => crc32c::crc32c(&frame[OLD_FRAME_HEADER..]),
            Self::Numbered(seed) => crc32c::crc32c_append(seed, &frame[4..]),
        }
    }

    /// Whether the last frame of a file is whole but for its length.
    fn is_whole_but_for_length(self, frame: &[u8]) -> bool {
        let Some(length) = frame.len().checked_sub(self.header()).and_then(|length| u32::try_from(length).ok()) else {
            return false;
        };
        let mut mended = frame.to_vec();
        let (length_at, checksum_at) = match self {
            Self::Old => (0, 4),
            Self::Numbered(_) => (4, 0),
        };
        mended[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
        number_at::<4>(frame, checksum_at).is_some_and(|found| found == self.checksum(&mended).to_le_bytes())
    }
}

/// What comes next in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// A record.
    Record {
        /// Where its frame is.
        at: usize,
        /// Its number.
        number: u64,
        /// Its bytes.
        body: &'a [u8],
    },
    /// Something that was written is not there any more.
    Damage(Damage),
    /// The end of what was written last is not there. Nothing follows.
    Torn(Damage),
    /// The end of the file, whole.
    End,
}

/// Where a file is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) at: usize,
    /// How many bytes are no records.
    pub(super) bytes: usize,
    /// The numbers of the records that are missing, as far as they are known.
    pub(super) missing: std::ops::Range<u64>,
    pub(super) reason: &'static str,
    /// So many more may be missing at most, where nothing that follows tells their numbers.
    pub(super) more: u64,
}

/// The frames of a file.
pub(super) struct Frames<'a> {
    file: &'a [u8],
    form: Form,
    at: usize,
    /// The number of the next record.
    expected: u64,
}

impl<'a> Frames<'a> {
    /// Of a file with this number, whose first record has the number `first`; the frames tell where that is not known.
    pub(super) fn of(file: &'a [u8], number: u64, beginning: Beginning, first: u64) -> Self {
        let frames = |form, at| Self { file, form, at, expected: first };
        match beginning {
            Beginning::Known(header) => frames(Form::numbered(header.number, header.contents), HEADER),
            Beginning::Damaged(contents) => frames(Form::numbered(number, contents), HEADER),
            Beginning::Old(_) => frames(Form::Old, OLD_HEADER),
            Beginning::Torn => frames(Form::Old, file.len()),
        }
    }

    /// The lower half of the number of the first record, as its frame says.
    pub(super) fn first_number(file: &[u8]) -> Option<u64> {
        number_at::<4>(file, HEADER + 8).map(u32::from_le_bytes).map(u64::from)
    }

    /// The number of the record that would be next.
    pub(super) const fn expected(&self) -> u64 {
        self.expected
    }

    /// Goes on to the next record, the next damage, or the end.
    pub(super) fn next(&mut self) -> Found<'a> {
        let at = self.at;
        if at >= self.file.len() {
            return Found::End;
        }
        let wrong = match self.form.parse(self.file, at, self.expected) {
            Ok((number, body)) if number == self.expected => {
                self.expected = number + 1;
                self.at = at + self.form.header() + body.len();
                return Found::Record { at, number, body };
            }
            Ok((number, _)) if number - self.expected <= MOST_MISSING.into() => {
                return Found::Damage(self.skip(at, number, "records are missing"));
            }
            Ok((_, body)) => {
                let after = at + self.form.header() + body.len();
                let reason = "a record is there that was written before";
                return Found::Damage(self.skip(after, self.expected, reason));
            }
            Err(wrong) => wrong,
        };
        if let Some((next, number)) = self.next_frame(at + 1) {
            // Version 1 does not tell how many are missing: one at least.
            let number = if matches!(self.form, Form::Old) { number + 1 } else { number };
            return Found::Damage(self.skip(next, number, wrong.reason));
        }
        let is_torn = self.is_torn(at, &wrong);
        let end = self.file.len();
        if is_torn {
            let none_known = self.expected;
            return Found::Torn(self.skip(end, none_known, wrong.reason));
        }
        let one_at_least = self.expected + 1;
        let more = self.most_after_one(at, &wrong);
        Found::Damage(Damage { more, ..self.skip(end, one_at_least, wrong.reason) })
    }

    /// How many records there may have been at most, beside one, from `at` to the end of the file.
    fn most_after_one(&self, at: usize, wrong: &NoFrame) -> u64 {
        let tail = &self.file[at..];
        let is_one = wrong.length.is_some_and(|length| tail.len() == self.form.header() + length);
        if is_one || self.form.is_whole_but_for_length(tail) {
            return 0;
        }
        (tail.len() / (self.form.header() + 1)).saturating_sub(1) as u64
    }

    /// Goes on at `next`, with the record of this number.
    fn skip(&mut self, next: usize, number: u64, reason: &'static str) -> Damage {
        let damage = Damage { at: self.at, bytes: next - self.at, missing: self.expected..number, more: 0, reason };
        self.at = next;
        self.expected = number;
        damage
    }

    /// The first place from `from` on with a frame that may follow, and the number of its record.
    fn next_frame(&self, from: usize) -> Option<(usize, u64)> {
        let last = self.file.len().checked_sub(self.form.header() + 1)?;
        (from..=last).find_map(|at| {
            let number_at = match self.form {
                Form::Old => None,
                Form::Numbered(_) => number_at::<4>(self.file, at + 8).map(u32::from_le_bytes),
            };
            let missing = number_at.map_or(0, |number| number.wrapping_sub(lower_half(self.expected)));
            // Looked at first, for it costs less than the checksum.
            let (number, _) =
                (missing <= MOST_MISSING).then(|| self.form.parse(self.file, at, self.expected).ok())??;
            Some((at, number))
        })
    }

    /// Whether a file that has no valid frame from `at` on may look so after a crash.
    fn is_torn(&self, at: usize, wrong: &NoFrame) -> bool {
        let tail = &self.file[at..];
        let is_short = match wrong.length {
            None => tail.len() < self.form.header(),
            Some(length) => tail.len() < self.form.header() + length,
        };
        let zeros = tail.iter().rev().take_while(|byte| **byte == 0).count();
        let boundary = (self.file.len() - zeros).next_multiple_of(SECTOR);
        // Some records end with a few zeros by themselves.
        let ends_in_zeros = zeros == tail.len() || boundary < self.file.len() && zeros > ZEROS_OF_A_RECORD;
        ends_in_zeros || is_short && !self.form.is_whole_but_for_length(tail)
    }
}

/// Writes the frames of one file.
#[derive(Debug)]
pub(super) struct FrameWriter {
    form: Form,
    next: u64,
}

impl FrameWriter {
    /// Of the file with this header.
    pub(super) fn of(header: Header) -> Self {
        let next = match header.contents {
            Contents::Changes => header.first,
            Contents::Everything => EVERYTHING,
        };
        Self { form: Form::numbered(header.number, header.contents), next }
    }

    /// The number of the next record.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Gives so many numbers to records that cannot be written, so that a reader finds them missing.
    pub(super) fn leave_out(&mut self, records: u64) {
        self.next += records;
    }

    /// Appends a frame with what `write` appends, and gives the number of the record.
    pub(super) fn frame(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let (at, number) = (out.len(), self.next);
        out.extend_from_slice(&[0; FRAME_HEADER]);
        write(out);
        let frame = &mut out[at..];
        let length = u32::try_from(frame.len() - FRAME_HEADER).unwrap_or(u32::MAX);
        frame[4..8].copy_from_slice(&length.to_le_bytes());
        frame[8..FRAME_HEADER].copy_from_slice(&lower_half(number).to_le_bytes());
        let checksum = self.form.checksum(frame);
        frame[..4].copy_from_slice(&checksum.to_le_bytes());
        self.next = number + 1;
        number
    }
}

/// The body of a frame that was found whole before.
pub(super) fn body_at(file: &[u8], at: usize, is_old: bool) -> Option<&[u8]> {
    let (header, length_at) = if is_old { (OLD_FRAME_HEADER, at) } else { (FRAME_HEADER, at + 4) };
    let length = u32::from_le_bytes(number_at::<4>(file, length_at)?) as usize;
    file.get(at + header..)?.get(..length)
}

fn number_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
const fn lower_half(number: u64) -> u32 {
    number as u32
}
