//! A request as it is read: tolerant of members that it does not know, exact in what it says about the others.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::framing::Value;

/// A request that was understood.
#[derive(Debug)]
pub(super) struct Call {
    /// The id in the client's own bytes.
    pub(super) id: String,
    pub(super) method: String,
    pub(super) params: Params,
}

/// Why a request was not understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misunderstood {
    /// The id, if that much was understood; `null` otherwise.
    pub(super) id: String,
    pub(super) reason: String,
}

/// The arguments of a request.
#[derive(Debug, Default)]
pub(super) struct Params {
    /// How many there are.
    pub(super) count: usize,
    /// Their text, if all of them are strings.
    pub(super) texts: Option<Vec<String>>,
}

/// A request has no more arguments than this, so that a short request cannot make a large table.
const MAX_ARGUMENTS: usize = 1 << 20;

impl Call {
    pub(super) fn parse(value: &Value) -> Result<Self, Misunderstood> {
        let nobody = |reason| Misunderstood { id: "null".to_owned(), reason };
        let envelope: Envelope<'_> = serde_json::from_slice(&value.bytes)
            .map_err(|error| nobody(format!("{} at byte {}", without_place(&error), place(value, &error))))?;
        let id = match envelope.id.map(RawValue::get) {
            None => return Err(nobody("the request has no \"id\"".to_owned())),
            Some("null") => return Err(nobody("the \"id\" of a request cannot be null".to_owned())),
            Some(id) => id.to_owned(),
        };
        match (envelope.method, envelope.params) {
            (Some(method), Some(params)) => Ok(Self { id, method, params }),
            (None, _) => Err(Misunderstood { id, reason: "the request has no \"method\"".to_owned() }),
            (_, None) => Err(Misunderstood { id, reason: "the request has no \"params\"".to_owned() }),
        }
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    // Kept as it is: it goes back to the client, and a tree of values would take many times its length.
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Params>,
}

/// Tells an id that is null from one that is not there.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'de> Deserialize<'de> for Params {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ParamsVisitor;

        impl<'de> Visitor<'de> for ParamsVisitor {
            type Value = Params;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an array of strings as \"params\"")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Params, A::Error> {
                let mut params = Params { count: 0, texts: Some(Vec::new()) };
                while let Some(element) = elements.next_element::<Element>()? {
                    params.count += 1;
                    if params.count > MAX_ARGUMENTS {
                        return Err(serde::de::Error::custom(format!("more than {MAX_ARGUMENTS} arguments")));
                    }
                    match (element, &mut params.texts) {
                        (Element::Text(text), Some(texts)) => texts.push(text),
                        _ => params.texts = None,
                    }
                }
                Ok(params)
            }
        }

        deserializer.deserialize_seq(ParamsVisitor)
    }
}

/// An argument. Whether it is a string matters only after their number, as in Open vSwitch.
enum Element {
    Text(String),
    Other,
}

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ElementVisitor;

        /// What is no string is passed over without being built, whatever its size and depth.
        impl<'de> Visitor<'de> for ElementVisitor {
            type Value = Element;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an argument")
            }

            fn visit_str<E>(self, text: &str) -> Result<Element, E> {
                Ok(Element::Text(text.to_owned()))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Element, E> {
                Ok(Element::Other)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Element, E> {
                Ok(Element::Other)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Element, E> {
                Ok(Element::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Element, E> {
                Ok(Element::Other)
            }

            fn visit_unit<E>(self) -> Result<Element, E> {
                Ok(Element::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<Element, A::Error> {
                IgnoredAny.visit_seq(elements).map(|_| Element::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Element, A::Error> {
                IgnoredAny.visit_map(members).map(|_| Element::Other)
            }
        }

        deserializer.deserialize_any(ElementVisitor)
    }
}

/// What serde_json has to say, without line and column.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// Where in the stream an error is.
fn place(value: &Value, error: &serde_json::Error) -> u64 {
    let lines_before = error.line().saturating_sub(1);
    let line_start: usize =
        value.bytes.split_inclusive(|&byte| byte == b'\n').take(lines_before).map(<[u8]>::len).sum();
    value.offset + (line_start + error.column().saturating_sub(1)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Call, Misunderstood> {
        Call::parse(&Value { bytes: text.as_bytes().to_vec(), offset: 100 })
    }

    fn reason(text: &str) -> String {
        parse(text).unwrap_err().reason
    }

    #[test]
    fn a_request_with_more_members_than_needed_is_understood() {
        let call = parse(r#"{"jsonrpc":"2.0","id":{"x":[1]},"method":"m","params":["a","é\n"]}"#).unwrap();
        assert_eq!(call.id, r#"{"x":[1]}"#);
        assert_eq!(call.method, "m");
        assert_eq!(call.params.texts.unwrap(), ["a", "é\n"]);
    }

    #[test]
    fn arguments_that_are_no_strings_are_counted() {
        let call = parse(r#"{"id":5,"method":"m","params":["a",1,{"b":[]},null]}"#).unwrap();
        assert_eq!(call.params.count, 4);
        assert_eq!(call.params.texts, None);
    }

    #[test]
    fn the_error_names_the_place_in_the_stream() {
        assert_eq!(reason("{\"id\":5,\n  oops}"), "key must be a string at byte 111");
        assert!(reason(r#"{"id":1,"method":7,"params":[]}"#).contains("expected a string"));
        assert!(reason(r#"{"id":1,"method":"m","params":{}}"#).contains("expected an array of strings as \"params\""));
        assert!(reason("{\"id\":1,\"method\":\"\u{1}\"}").contains("control character"));
    }

    #[test]
    fn what_is_missing_is_named_and_a_known_id_comes_back() {
        assert_eq!(reason("{}"), "the request has no \"id\"");
        assert_eq!(reason(r#"{"id":null,"method":"m","params":[]}"#), "the \"id\" of a request cannot be null");
        assert_eq!(
            parse(r#"{"id":7,"method":"m"}"#).unwrap_err(),
            Misunderstood { id: "7".to_owned(), reason: "the request has no \"params\"".to_owned() }
        );
        assert_eq!(reason(r#"{"id":7,"params":[]}"#), "the request has no \"method\"");
    }

    #[test]
    fn deep_nesting_does_no_harm() {
        let deep = format!("{}{}", "[".repeat(990), "]".repeat(990));
        let call = parse(&format!("{{\"id\":{deep},\"method\":\"m\",\"params\":[{deep}],\"x\":{deep}}}")).unwrap();
        assert_eq!((call.id, call.params.count, call.params.texts), (deep, 1, None));
    }

    #[test]
    fn a_flood_of_arguments_is_refused() {
        let text = format!("{{\"id\":1,\"method\":\"m\",\"params\":[{}0]}}", "0,".repeat(MAX_ARGUMENTS));
        assert!(reason(&text).contains("more than 1048576 arguments"));
    }
}
