//! Every way to cut a form gives the same form; what browsers and other clients write is understood; what is malformed or
//! too much is refused by name.

use super::*;
use proptest::prelude::*;

/// Name, file name, content type and content of each part.
type Parts = Vec<(String, Option<String>, Option<String>, Vec<u8>)>;

const BROWSER: &[u8] = b"--X-b\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\nh\xc3\xa4llo\r\n--X-b\r\n\
    Content-Disposition: form-data; name=\"file\"; filename=\"a \\\"%22\\\" 100%25.txt\"\r\nContent-Type: text/plain\r\n\r\n\
    \r\n--X-\r\n--X-\r-\r\r\n\n--X-b\r\n--X-b\r\ncontent-disposition:form-data;name=none\r\n\r\n--X-b--\r\n";

fn decode(pieces: &[&[u8]], limits: MultipartLimits) -> (Parts, std::result::Result<(), String>) {
    let mut decoder = MultipartDecoder::new("X-b", limits).expect("a boundary");
    let (mut parts, mut open) = (Parts::new(), false);
    for piece in pieces {
        let mut input = Bytes::copy_from_slice(piece);
        loop {
            match decoder.decode(&mut input) {
                Ok(MultipartEvent::Part(head)) => {
                    assert!(!std::mem::replace(&mut open, true));
                    let text = |text: Option<&str>| text.map(str::to_owned);
                    let (name, file) = (head.name().to_owned(), text(head.filename()));
                    parts.push((name, file, text(head.content_type()), Vec::new()));
                }
                Ok(MultipartEvent::Data(bytes)) => {
                    assert!(open && !bytes.is_empty());
                    parts.last_mut().expect("a part").3.extend_from_slice(&bytes);
                }
                Ok(MultipartEvent::PartEnd) => assert!(std::mem::replace(&mut open, false)),
                Ok(MultipartEvent::End) => assert!(!open),
                Ok(MultipartEvent::NeedMore) => break,
                Err(error) => {
                    assert_eq!(decoder.decode(&mut input).unwrap_err().to_string(), error.to_string());
                    return (parts, Err(error.to_string()));
                }
            }
        }
    }
    (parts, decoder.finish().map_err(|error| error.to_string()))
}

fn whole(form: &[u8]) -> (Parts, std::result::Result<(), String>) {
    decode(&[form], MultipartLimits::DEFAULT)
}

fn refusal(form: &[u8]) -> String {
    whole(form).1.expect_err("it is refused")
}

/// A form of one part with this header.
fn with_header(header: &str) -> Vec<u8> {
    format!("--X-b\r\n{header}\r\n\r\nx\r\n--X-b--").into_bytes()
}

fn names(disposition: &str) -> (String, Option<String>) {
    let (mut parts, verdict) = whole(&with_header(&format!("Content-Disposition: form-data; {disposition}")));
    assert_eq!(verdict, Ok(()), "{disposition}");
    let (name, filename, _, content) = parts.remove(0);
    assert_eq!(content, b"x");
    (name, filename)
}

#[test]
fn l_18_every_way_to_cut_a_form_gives_the_same_form() {
    let expected = whole(BROWSER);
    assert_eq!(expected.1, Ok(()));
    let file = b"\r\n--X-\r\n--X-\r-\r\r\n\n--X-b".to_vec();
    assert_eq!(
        expected.0,
        [
            ("text".to_owned(), None, None, "hällo".into()),
            ("file".to_owned(), Some("a \"\"\" 100%25.txt".to_owned()), Some("text/plain".to_owned()), file),
            ("none".to_owned(), None, None, Vec::new()),
        ]
    );
    let octets: Vec<&[u8]> = BROWSER.chunks(1).collect();
    assert_eq!(decode(&octets, MultipartLimits::DEFAULT), expected);
    for first in 0..=BROWSER.len() {
        let (head, tail) = BROWSER.split_at(first);
        assert_eq!(decode(&[head, tail], MultipartLimits::DEFAULT), expected, "cut at {first}");
    }
    for end in 0..BROWSER.len() - 2 {
        assert!(decode(&[&BROWSER[..end]], MultipartLimits::DEFAULT).1.is_err(), "it ends at {end}");
    }
}

#[test]
fn names_are_read_as_clients_write_them() {
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(names("name=a; filename=b.txt"), ("a".into(), some("b.txt")));
    assert_eq!(names("name=\"a;b\"; filename=\"\""), ("a;b".into(), some("")));
    assert_eq!(names("NAME=\"a%0D%0Ab%22c%20\";"), ("a\r\nb\"c%20".into(), None));
    assert_eq!(names(r#"name="a"; filename="C:\dir\x.txt""#), ("a".into(), some(r"C:\dir\x.txt")));
    assert_eq!(names(r#"name="a"; filename="\"x\\y\"""#), ("a".into(), some(r#""x\y""#)));
    assert_eq!(names("name=a; filename*=UTF-8''%e2%82%ac%20r"), ("a".into(), some("€ r")));
    assert_eq!(names("name=a; filename*=utf-8'en'b; filename=plain"), ("a".into(), some("plain")));
    assert_eq!(names("name=\"ä€😀\"; filename=\"日本\"; other=1"), ("ä€😀".into(), some("日本")));
}

#[test]
fn malformed_forms_are_refused_by_name() {
    assert!(refusal(b"").contains("before its last boundary"));
    assert!(refusal(b"--X-b").contains("before its last boundary"));
    assert!(refusal(b"x--X-b--").contains("before its last boundary"));
    assert!(refusal(b"--X-bc\r\n").contains("followed by something else"));
    assert!(refusal(b"--X-b\n").contains("followed by something else"));
    assert!(refusal(b"--X-b-\r\n").contains("followed by something else"));
    assert!(refusal(b"--X-b \r\r\n").contains("followed by something else"));
    for (header, reason) in [
        ("", "needs one Content-Disposition"),
        ("Content-Type: text/plain", "needs one Content-Disposition"),
        ("Content-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b", "needs one"),
        ("Content-Disposition: attachment; name=a", "no form-data"),
        ("Content-Disposition: form-data", "no name"),
        ("Content-Disposition: form-data; name=a; name=b", "twice"),
        ("Content-Disposition: form-data; name=\"a", "invalid parameter"),
        ("Content-Disposition: form-data; name=\"a\"b", "invalid parameter"),
        ("Content-Disposition: form-data; name", "invalid parameter"),
        ("Content-Disposition: form-data; name=a;\r\n filename=b", "without a colon"),
        ("Content-Disposition : form-data; name=a", "invalid name"),
        (": form-data; name=a", "invalid name"),
        ("Content-Disposition: form-data; name=a\nX: y", "control character"),
        ("Content-Disposition: form-data; name=a\0", "control character"),
        ("Content-Disposition: form-data; name=a; filename*=ISO-8859-1''a", "extended"),
        ("Content-Disposition: form-data; name=a; filename*=UTF-8''%ff", "extended"),
        ("Content-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: base64", "Transfer-Encoding"),
    ] {
        let seen = refusal(&with_header(header));
        assert!(seen.contains(reason), "{header}: {seen}");
    }
    assert!(
        refusal(b"--X-b\r\nContent-Disposition: form-data; name=\xff\r\n\r\n\r\n--X-b--")
            .contains("not UTF-8")
    );
}

#[test]
fn what_is_too_much_is_refused_at_the_byte_beyond() {
    let limits = MultipartLimits { parts_max: 2, header_bytes_max: 60, margin_bytes_max: 10 };
    let verdict = |form: &str| {
        let whole = decode(&[form.as_bytes()], limits);
        assert_eq!(decode(&form.as_bytes().chunks(1).collect::<Vec<_>>(), limits), whole);
        whole.1.map_err(|error| error.rsplit(' ').next().unwrap_or_default().to_owned())
    };
    let part = "--X-b\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n";
    assert_eq!(verdict(&format!("{part}{part}--X-b--")), Ok(()));
    assert_eq!(verdict(&format!("{part}{part}{part}--X-b--")), Err("parts_max".to_owned()));
    let header = |len: usize| {
        format!("--X-b\r\nContent-Disposition: form-data; name={}\r\n\r\n1\r\n--X-b--", "a".repeat(len))
    };
    let fits = 60 - "Content-Disposition: form-data; name=".len() - LINE_END;
    assert_eq!(verdict(&header(fits)), Ok(()));
    assert_eq!(verdict(&header(fits + 1)), Err("header_bytes_max".to_owned()));
    assert_eq!(verdict("0123456789\r\n--X-b--0123456789"), Ok(()));
    assert_eq!(verdict("0123456789a\r\n--X-b--"), Err("margin_bytes_max".to_owned()));
    assert_eq!(verdict("--X-b--0123456789a"), Err("margin_bytes_max".to_owned()));
    assert_eq!(verdict(&format!("--X-b{}", " ".repeat(11))), Err("margin_bytes_max".to_owned()));
}

#[test]
fn a_boundary_is_what_rfc_2046_allows() {
    let of = |value: &str| MultipartDecoder::for_content_type(value.as_bytes(), MultipartLimits::DEFAULT);
    for good in
        ["boundary=a", "charset=utf-8; BOUNDARY=\"a b:=?\"", "boundary=----WebKitFormBoundary7MA4YWxk"]
    {
        assert!(of(&format!("Multipart/Form-Data; {good}")).is_ok(), "{good}");
    }
    let long = format!("boundary={}", "a".repeat(71));
    for bad in
        ["", "boundary=", "boundary=\"a \"", "boundary=a;boundary=b", "boundary=\"a", "boundary=ä", &long]
    {
        let error = of(&format!("multipart/form-data; {bad}")).expect_err(bad);
        assert!(matches!(error, Error::InvalidBody(_)), "{bad}: {error}");
    }
    assert!(of(&format!("multipart/form-data; {}", &long[..long.len() - 1])).is_ok());
    for other in ["", "text/plain", "multipart/mixed; boundary=a", "multipart/form-datax; boundary=a"] {
        assert!(matches!(of(other), Err(Error::UnsupportedMediaType)), "{other}");
    }
}

/// Content passes as slices of the input: no copy, and no search that begins again.
#[test]
fn content_is_not_copied() {
    let form =
        Bytes::from([&with_header("Content-Disposition: form-data; name=a")[..50], &[b'\r'; 4096]].concat());
    let mut decoder = MultipartDecoder::new("X-b", MultipartLimits::DEFAULT).expect("a boundary");
    let mut input = form.clone();
    assert!(matches!(decoder.decode(&mut input), Ok(MultipartEvent::Part(_))));
    let Ok(MultipartEvent::Data(data)) = decoder.decode(&mut input) else { panic!("content") };
    assert!(form.as_ptr_range().contains(&data.as_ptr()) && data.len() >= 4095);
}

fn form_like() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&'static [u8]> = vec![
        b"--X-b",
        b"\r\n--X-b",
        b"\r\n",
        b"\r",
        b"\n",
        b"--",
        b"-",
        b" ",
        b"x",
        b"\"",
        b"--X-b\r\nContent-Disposition: form-data; name=a\r\n\r\n",
        b"\r\n--X-b\r\nContent-Disposition: form-data; name=\"b\"; filename=\"c\"\r\n\r\n",
        b"\r\n--X-b--",
    ];
    prop::collection::vec(prop::sample::select(words), 0..24).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// No cut changes what a form says, valid or not.
    #[test]
    fn no_cut_changes_what_a_form_says(bytes in form_like(), piece in 1usize..9) {
        let limits = MultipartLimits { parts_max: 3, header_bytes_max: 80, margin_bytes_max: 12 };
        let pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
        prop_assert_eq!(decode(&pieces, limits), decode(&[&bytes], limits));
    }

    /// Whatever has no boundary in it arrives as it was.
    #[test]
    fn content_arrives_as_it_was(
        content in prop::collection::vec(prop::sample::select(b"\r\n-Xbc".to_vec()), 0..64),
        piece in 1usize..9,
    ) {
        let body = [b"\r\n", &content[..], b"\r\n"].concat();
        prop_assume!(!body.windows(7).any(|window| window == b"\r\n--X-b"));
        let start = &b"--X-b\r\nContent-Disposition: form-data; name=a\r\n\r\n"[..];
        let form = [start, &content, b"\r\n--X-b--"].concat();
        let (parts, verdict) = decode(&form.chunks(piece).collect::<Vec<_>>(), MultipartLimits::DEFAULT);
        prop_assert_eq!(verdict, Ok(()));
        prop_assert_eq!(&parts[0].3, &content);
    }
}
