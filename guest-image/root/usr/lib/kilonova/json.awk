# Flattens a JSON text: a line "path<TAB>value" for each string, number, true, false and null. The path has the keys and
# list indexes that lead there, each behind a slash. In paths and values, backslash, newline, tab and carriage return are
# written \\ \n \t \r, so that `printf %b` gives the text back. Other control characters are left out.
# A text that is not JSON ends it with exit code 1.

{ rest = rest $0 "\n" }

END {
  parse("")
  skip()
  if (rest != "") fail()
}

function parse(path,   first) {
  skip()
  first = substr(rest, 1, 1)
  if (first == "{") members(path, "}")
  else if (first == "[") members(path, "]")
  else if (first == "\"") print path "\t" string()
  else if (match(rest, /^(-?[0-9][0-9.eE+-]*|true|false|null)/)) print path "\t" take(RLENGTH)
  else fail()
}

function members(path, close_,   key, n) {
  take(1)
  skip()
  if (substr(rest, 1, 1) == close_) { take(1); return }
  for (n = 0; ; n++) {
    key = n
    if (close_ == "}") {
      skip()
      if (substr(rest, 1, 1) != "\"") fail()
      key = string()
      skip()
      if (take(1) != ":") fail()
    }
    parse(path "/" key)
    skip()
    key = take(1)
    if (key == close_) return
    if (key != ",") fail()
  }
}

function string(   text, plain) {
  take(1)
  while (match(rest, /["\\]/)) {
    plain = take(RSTART - 1)
    gsub(/\r/, "\\r", plain)
    gsub(/\n/, "\\n", plain)
    gsub(/\t/, "\\t", plain)
    text = text plain
    if (take(1) == "\"") return text
    text = text escaped(take(1))
  }
  fail()
}

function escaped(letter,   code, low) {
  if (letter == "n" || letter == "t" || letter == "r") return "\\" letter
  if (letter == "\\") return "\\\\"
  if (letter == "\"" || letter == "/") return letter
  if (letter == "b" || letter == "f") return ""
  if (letter != "u") fail()
  code = hex(take(4))
  if (code >= 55296 && code < 56320 && substr(rest, 1, 2) == "\\u") { # the first half of a surrogate pair
    take(2)
    low = hex(take(4))
    code = 65536 + (code - 55296) * 1024 + low - 56320
  }
  if (code == 10) return "\\n"
  if (code == 9) return "\\t"
  if (code == 13) return "\\r"
  if (code == 92) return "\\\\"
  if (code < 32) return ""
  return utf8(code)
}

function utf8(code) {
  if (code < 128) return sprintf("%c", code)
  if (code < 2048) return sprintf("%c%c", 192 + int(code / 64), 128 + code % 64)
  if (code < 65536) return sprintf("%c%c%c", 224 + int(code / 4096), 128 + int(code / 64) % 64, 128 + code % 64)
  return sprintf("%c%c%c%c", 240 + int(code / 262144), 128 + int(code / 4096) % 64, 128 + int(code / 64) % 64, 128 + code % 64)
}

function hex(digits,   n, digit, code) {
  for (n = 1; n <= 4; n++) {
    digit = index("0123456789abcdef", tolower(substr(digits, n, 1)))
    if (!digit || n > length(digits)) fail()
    code = code * 16 + digit - 1
  }
  return code
}

function skip() { if (match(rest, /^[ \t\r\n]+/)) take(RLENGTH) }

function take(count,   taken) {
  taken = substr(rest, 1, count)
  rest = substr(rest, count + 1)
  return taken
}

# In END, exit ends the program at once.
function fail() { exit 1 }
