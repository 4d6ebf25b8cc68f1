//! Hive folders in the paths of source files.

use super::escape::unescape;
use super::value::HIVE_NULL;

/// The value of the innermost `key=value` folder of that key, unescaped, and none inside for Hive's name of nulls. None where
/// the path has no such folder; the file's own name is no folder.
pub fn folder_value(path: &str, key: &str) -> Option<Option<String>> {
    let (folders, _) = path.rsplit_once('/')?;
    let value_in = |folder: &str| {
        let (name, value) = folder.split_once('=')?;
        (unescape(name) == key).then(|| unescape(value))
    };
    let value = folders.rsplit('/').find_map(value_in)?;
    Some(Some(value).filter(|value| value != HIVE_NULL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_folder_of_that_very_key_counts() {
        let of = |path, key| folder_value(path, key);
        let some = |text: &str| Some(Some(text.to_owned()));
        assert_eq!(of("in/cat=fred/catnum=1/p.parquet", "cat"), some("fred"));
        assert_eq!(of("in/cat=freda/catnum=1/p.parquet", "cat"), some("freda"));
        assert_eq!(of("in/catnum=1/p", "cat"), None);
        assert_eq!([of("a=1/a=2/p", "a"), of("a=1/a=x=y/p", "a")], [some("2"), some("x=y")]);
        assert_eq!(of("a%3Ab=c%2Fd e%25/p", "a:b"), some("c/d e%"));
        assert_eq!(of("a=__HIVE_DEFAULT_PARTITION__/p", "a"), Some(None));
        assert_eq!(of("a=/p", "a"), some(""));
        assert_eq!([of("a=1", "a"), of("in/a=1", "a"), of("A=1/p", "a"), of("p", "a")], [None, None, None, None]);
    }
}
