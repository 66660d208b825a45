# calls.awk: from include/sluice.h and tests/api/good_calls, C code that calls every public function with good arguments and
# with each argument bad in turn. Output: one function call_NAME(w, variant) each and the table `api_functions`, which
# tests/api/api_test.c walks. A function of the header without a line in good_calls, a line without a function, or with
# another number of arguments becomes a row that fails the test by name.
#
#     awk -f calls.awk good_calls sluice.h > api_calls.h

function trim(s) { sub(/^[ \t\n]+/, "", s); sub(/[ \t\n]+$/, "", s); return s }

# Splits s at commas outside brackets into parts[1..]; returns how many.
function split_top(s, parts,    i, c, depth, n, at) {
    n = 0; depth = 0; at = 1; s = trim(s)
    if (s == "") return 0
    for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        if (c ~ /[({\[]/) depth++
        if (c ~ /[)}\]]/) depth--
        if (c == "," && depth == 0) { parts[++n] = trim(substr(s, at, i - at)); at = i + 1 }
    }
    parts[++n] = trim(substr(s, at))
    return n
}

function quoted(s) { gsub(/\\/, "\\\\", s); gsub(/"/, "\\\"", s); return "\"" s "\"" }

# ---- good_calls ----

FNR == NR {
    if ($0 ~ /^#/ || trim($0) == "") next
    colon = index($0, ":")
    good[substr($0, 1, colon - 1)] = substr($0, colon + 1)
    next
}

# ---- the header: comments away, declarations joined ----

{ text = text $0 "\n" }

# Bad values of an argument into bad[1..] and its name into bad_name; returns how many.
function bad_values(declaration, bad,    type, n) {
    n = 0
    if (declaration ~ /\(\*/ || declaration ~ /\*/ || declaration ~ /\[/ || declaration ~ /^sluice_(log|fill)_fn/) {
        bad[++n] = "NULL"
        if (declaration ~ /^const char \*[a-z_]+$/) bad[++n] = "\"\""
        if (declaration ~ /^const char \*(name|key|assignment)$/) bad[++n] = "\"\\xff\\xfe\""
        return n
    }
    type = declaration
    sub(/[ ]*[a-z_0-9]+$/, "", type)
    if (type == "bool") return 0
    if (type == "int") { bad[++n] = "INT_MIN"; bad[++n] = "-1"; bad[++n] = "INT_MAX" }
    else if (type == "int32_t") { bad[++n] = "INT32_MIN"; bad[++n] = "INT32_MAX" }
    else if (type == "int64_t") { bad[++n] = "INT64_MIN"; bad[++n] = "-1"; bad[++n] = "INT64_MAX" }
    else if (type == "uint64_t") bad[++n] = "UINT64_MAX"
    else if (type == "size_t") { bad[++n] = "0"; bad[++n] = "(size_t)-1" }
    else if (type == "float") { bad[++n] = "NAN"; bad[++n] = "INFINITY"; bad[++n] = "-INFINITY" }
    else if (type == "double") { bad[++n] = "NAN"; bad[++n] = "INFINITY"; bad[++n] = "-INFINITY"; bad[++n] = "-1" }
    else if (type == "sluice_value") { bad[++n] = "SLUICE_NONE"; bad[++n] = "-7"; bad[++n] = "1 << 30" }
    else if (type == "sluice_init") {
        bad[++n] = "(sluice_init){ (sluice_init_kind)99, 1 }"
        bad[++n] = "(sluice_init){ SLUICE_INIT_NORMAL, NAN }"
        bad[++n] = "(sluice_init){ SLUICE_INIT_UNIFORM, -1 }"
    }
    else if (type ~ /^sluice_/) { bad[++n] = "(" type ")-1"; bad[++n] = "(" type ")99" }
    else bad[++n] = "api_unknown_type_of(" declaration ")" # does not compile: say here what is bad for the type
    return n
}

function emit_row(name, returns, fault, variants) {
    table = table "    { \"" name "\", " returns ", " fault ", " variants ", call_" name " },\n"
}

# One case of the switch; arguments in args[1..n].
function emit_case(name, kind, variant, what, expected, args, n,    i, list) {
    list = ""
    for (i = 1; i <= n; i++) list = list (i > 1 ? ", " : "") args[i]
    printf "    case %d:\n        r->what = %s;\n        r->expected = %s;\n        api_begin(r);\n", variant, quoted(what), expected
    if (kind == "RETURNS_STATUS" || kind == "RETURNS_VALUE") printf "        r->result = (int)%s(%s);\n", name, list
    else if (kind == "RETURNS_VOID" || kind == "BUILDS") printf "        %s(%s);\n", name, list
    else printf "        (void)%s(%s);\n", name, list
    printf "        return;\n"
}

function emit(declaration,    open, name, returns, kind, declared, marked, parts, args, n, m, i, k, b, bad, mark, variant, call, expected) {
    open = index(declaration, "(")
    call = substr(declaration, 1, open - 1)
    name = call; sub(/^.*[ *]/, "", name)
    returns = trim(substr(call, 1, length(call) - length(name)))
    kind = returns == "sluice_status" ? "RETURNS_STATUS" : returns == "sluice_value" ? "RETURNS_VALUE" : returns == "void" ? "RETURNS_VOID" : "RETURNS_OTHER"
    if (kind == "RETURNS_VOID" && declaration ~ /\(sluice_graph \*g,/) kind = "BUILDS" # its errors are the graph's
    declared = substr(declaration, open + 1); sub(/\)[^)]*$/, "", declared)
    if (trim(declared) == "void") declared = ""
    n = split_top(declared, parts)
    seen[name] = 1
    functions++
    printf "static void call_%s(api_world *w, int variant, api_result *r)\n{\n    (void)w;\n", name
    if (!(name in good)) {
        printf "    (void)variant;\n    (void)r;\n}\n\n"
        emit_row(name, kind, quoted("sluice.h declares it, tests/api/good_calls has no call of it"), 0)
        return
    }
    m = split_top(good[name], marked)
    if (m != n) {
        printf "    (void)variant;\n    (void)r;\n}\n\n"
        emit_row(name, kind, quoted("sluice.h declares " n " arguments, tests/api/good_calls gives " m), 0)
        return
    }
    for (i = 1; i <= n; i++) {
        mark[i] = marked[i] ~ /^[?~=]/ ? substr(marked[i], 1, 1) : ""
        args[i] = mark[i] != "" ? substr(marked[i], 2) : marked[i]
    }
    printf "    switch (variant) {\n"
    emit_case(name, kind, 0, name "(good arguments)", "MUST_SUCCEED", args, n)
    variant = 1
    for (i = 1; i <= n; i++) {
        if (mark[i] == "=") continue
        b = bad_values(parts[i], bad)
        for (k = 1; k <= b; k++) {
            expected = mark[i] == "~" ? "MUST_SURVIVE" : mark[i] == "?" && (bad[k] == "NULL" || bad[k] == "SLUICE_NONE") ? "MUST_SUCCEED" : "MUST_BE_REFUSED"
            if (mark[i] == "?" && bad[k] == "\"\"") expected = "MUST_SURVIVE"
            call = args[i]; args[i] = bad[k]
            emit_case(name, kind, variant++, name "(" parts[i] " = " bad[k] ")", expected, args, n)
            args[i] = call
        }
    }
    printf "    }\n}\n\n"
    emit_row(name, kind, "NULL", variant)
}

END {
    print "/* Generated by tests/api/calls.awk from include/sluice.h and tests/api/good_calls. */"
    gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", text)
    count = split(text, pieces, "SLUICE_API ")
    for (p = 2; p <= count; p++) {
        declaration = pieces[p]
        if (declaration ~ /^__attribute__/) continue
        declaration = substr(declaration, 1, index(declaration, ";") - 1)
        gsub(/[ \t\n]+/, " ", declaration)
        if (index(declaration, "(") > 0) emit(declaration)
    }
    for (name in good)
        if (!(name in seen)) {
            printf "static void call_%s(api_world *w, int variant, api_result *r)\n{\n    (void)w;\n    (void)variant;\n    (void)r;\n}\n\n", name
            emit_row(name, "RETURNS_OTHER", quoted("tests/api/good_calls calls it, sluice.h does not declare it"), 0)
        }
    printf "static const api_function api_functions[] = {\n%s};\n", table
    printf "enum { API_DECLARED = %d };\n", functions
}
