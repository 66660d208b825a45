/* json_members.h: the members of a JSON object one by one, without building a tree: some twenty times as fast.
 *
 * For lines of a journal, of which nearly all are alike. It tells where members begin and end, and does not check what is in
 * them: what it refuses, or finds odd, is for the JSON parser. */
#ifndef SL_FORMAT_JSON_MEMBERS_H
#define SL_FORMAT_JSON_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>

/* A member, in the text that was given. */
typedef struct sl_json_member {
    const char *key; /* with its escapes, as it is written */
    size_t key_bytes;
    const char *value;
    size_t value_bytes;
} sl_json_member;

typedef struct sl_json_members {
    const char *at, *end; /* not for others */
    bool whole;           /* all members were there, and nothing behind the object */
} sl_json_members;

void sl_json_members_begin(sl_json_members *m, const char *text, size_t bytes);
/* False: there is none, or the text is no object as far as it goes. */
bool sl_json_next_member(sl_json_members *m, sl_json_member *out);
bool sl_json_member_is(const sl_json_member *m, const char *key);

#endif
