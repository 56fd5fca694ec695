BEGIN TRANSACTION;
CREATE TABLE delf_blobs (
    task INTEGER NOT NULL, digest TEXT NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (task, digest)
);
CREATE TABLE delf_conversations (
    id INTEGER PRIMARY KEY AUTOINCREMENT, namespace TEXT NOT NULL, name TEXT NOT NULL, title TEXT NOT NULL,
    updated_at REAL NOT NULL, messages INTEGER NOT NULL, last INTEGER NOT NULL,
    summarized INTEGER NOT NULL, summary TEXT, summary_trust TEXT NOT NULL DEFAULT 'outside',
    UNIQUE (namespace, name)
);
INSERT INTO "delf_conversations" VALUES(1,'me','c','hi',1.0,1,1,0,NULL,'outside');
CREATE TABLE delf_events (
    pos INTEGER PRIMARY KEY AUTOINCREMENT, task INTEGER NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL,
    type TEXT NOT NULL, v INTEGER NOT NULL, data TEXT NOT NULL, blobs TEXT, UNIQUE (task, seq)
);
INSERT INTO "delf_events" VALUES(1,1,1,1.0,'TaskQueued',1,'{"task": "pay done", "origin": "", "timeout": null, "setup": {}, "conversation": null, "interactive": false, "queue": null, "user": "ada:1", "priority": 0, "not_before": null, "retries": null, "retry_after": null}',NULL);
INSERT INTO "delf_events" VALUES(2,1,2,2.0,'TaskStarted',1,'{"task": "pay done", "origin": "agent", "seed": "", "setup": {}, "conversation": null, "interactive": true, "parent": null, "worker": null, "zone": "", "zone_name": "", "user": "ada:1"}',NULL);
INSERT INTO "delf_events" VALUES(3,1,3,3.0,'ScriptGenerated',1,'{"code": "await bank.pay(5)", "attempt": 1, "confirmed_actions": {"$t": "tuple", "v": []}}',NULL);
INSERT INTO "delf_events" VALUES(4,1,4,4.0,'ApprovalRequested',1,'{"request_id": "req_done", "task": "", "call_id": 1, "action": "bank.pay", "permission": "", "effect": "irreversible", "arguments": {"n": 5}, "defaults": {}, "description": null, "digest": "abababababababababababababababababababababababababababababababab", "action_digest": "", "shown_digest": null, "files_digest": null, "reason": null, "preview": null, "outcome_unknown": false, "returns": null, "changed": false, "is_question": false, "code": null, "actions": {"$t": "tuple", "v": []}, "effects": {}, "script": 0, "because": null, "changes": {"$t": "tuple", "v": []}, "changes_before": 0, "made_before": null, "line": null, "worker": null, "origins": {}, "asked_by": "local", "shaped_by": {"$t": "tuple", "v": []}, "rule": {}, "flow": null, "files": {}, "parent": null, "expires_after": null, "takes_changes": false, "by_policy": false}',NULL);
INSERT INTO "delf_events" VALUES(5,1,5,5.0,'ApprovalDecided',1,'{"request_id": "req_done", "decision": "approved", "by": "ann", "via": "", "others": {"$t": "tuple", "v": []}, "source": "person", "reason": null, "arguments": null, "result": null, "answer": null, "note": null, "remember": "until_revoked", "covers": "call", "user": null, "project": null, "person": null}',NULL);
INSERT INTO "delf_events" VALUES(6,1,6,6.0,'CallStarted',1,'{"call_id": 1, "action": "bank.pay", "arguments": {"n": 5}, "effect": "irreversible", "digest": "abababababababababababababababababababababababababababababababab", "description": null, "line": null}',NULL);
INSERT INTO "delf_events" VALUES(7,1,7,7.0,'CallFinished',1,'{"call_id": 1, "action": "bank.pay", "status": "ok", "duration_ms": 1.0, "result": 5, "error": null, "description": null, "raised": null, "digest": null, "cancellation": null, "can_retry": true, "outcome_unknown": false, "http_status": null, "line": null}',NULL);
INSERT INTO "delf_events" VALUES(8,1,8,8.0,'TaskFinished',1,'{"status": true, "text": "paid", "duration_ms": 2.0, "error": null, "code": null, "hint": null, "cost_usd": null, "files": {}, "value": null, "by": null, "via": ""}',NULL);
INSERT INTO "delf_events" VALUES(9,2,1,1.0,'TaskQueued',1,'{"task": "pay bad", "origin": "", "timeout": null, "setup": {}, "conversation": null, "interactive": false, "queue": null, "user": "ada:1", "priority": 0, "not_before": null, "retries": null, "retry_after": null}',NULL);
INSERT INTO "delf_events" VALUES(10,2,2,2.0,'TaskStarted',1,'{"task": "pay bad", "origin": "agent", "seed": "", "setup": {}, "conversation": null, "interactive": true, "parent": null, "worker": null, "zone": "", "zone_name": "", "user": "ada:1"}',NULL);
INSERT INTO "delf_events" VALUES(11,2,3,3.0,'ScriptGenerated',1,'{"code": "await bank.pay(5)", "attempt": 1, "confirmed_actions": {"$t": "tuple", "v": []}}',NULL);
INSERT INTO "delf_events" VALUES(12,2,4,4.0,'ApprovalRequested',1,'{"request_id": "req_bad", "task": "", "call_id": 1, "action": "bank.pay", "permission": "", "effect": "irreversible", "arguments": {"n": 5}, "defaults": {}, "description": null, "digest": "abababababababababababababababababababababababababababababababab", "action_digest": "", "shown_digest": null, "files_digest": null, "reason": null, "preview": null, "outcome_unknown": false, "returns": null, "changed": false, "is_question": false, "code": null, "actions": {"$t": "tuple", "v": []}, "effects": {}, "script": 0, "because": null, "changes": {"$t": "tuple", "v": []}, "changes_before": 0, "made_before": null, "line": null, "worker": null, "origins": {}, "asked_by": "local", "shaped_by": {"$t": "tuple", "v": []}, "rule": {}, "flow": null, "files": {}, "parent": null, "expires_after": null, "takes_changes": false, "by_policy": false}',NULL);
INSERT INTO "delf_events" VALUES(13,2,5,5.0,'ApprovalDecided',1,'{"request_id": "req_bad", "decision": "approved", "by": "ann", "via": "", "others": {"$t": "tuple", "v": []}, "source": "person", "reason": null, "arguments": null, "result": null, "answer": null, "note": null, "remember": "no", "covers": "call", "user": null, "project": null, "person": null}',NULL);
INSERT INTO "delf_events" VALUES(14,2,6,6.0,'CallStarted',1,'{"call_id": 1, "action": "bank.pay", "arguments": {"n": 5}, "effect": "irreversible", "digest": "abababababababababababababababababababababababababababababababab", "description": null, "line": null}',NULL);
INSERT INTO "delf_events" VALUES(15,2,7,7.0,'CallFinished',1,'{"call_id": 1, "action": "bank.pay", "status": "ok", "duration_ms": 1.0, "result": 5, "error": null, "description": null, "raised": null, "digest": null, "cancellation": null, "can_retry": true, "outcome_unknown": false, "http_status": null, "line": null}',NULL);
INSERT INTO "delf_events" VALUES(16,2,8,8.0,'TaskFinished',1,'{"status": false, "text": "paid", "duration_ms": 2.0, "error": "no", "code": null, "hint": null, "cost_usd": null, "files": {}, "value": null, "by": null, "via": ""}',NULL);
INSERT INTO "delf_events" VALUES(17,3,1,1.0,'TaskQueued',1,'{"task": "pay waits", "origin": "", "timeout": null, "setup": {}, "conversation": null, "interactive": false, "queue": null, "user": "ada:1", "priority": 0, "not_before": null, "retries": null, "retry_after": null}',NULL);
INSERT INTO "delf_events" VALUES(18,3,2,2.0,'TaskStarted',1,'{"task": "pay waits", "origin": "agent", "seed": "", "setup": {}, "conversation": null, "interactive": true, "parent": null, "worker": null, "zone": "", "zone_name": "", "user": "ada:1"}',NULL);
INSERT INTO "delf_events" VALUES(19,3,3,3.0,'ScriptGenerated',1,'{"code": "await bank.pay(5)", "attempt": 1, "confirmed_actions": {"$t": "tuple", "v": []}}',NULL);
INSERT INTO "delf_events" VALUES(20,3,4,4.0,'ApprovalRequested',1,'{"request_id": "req_waits", "task": "", "call_id": 1, "action": "bank.pay", "permission": "", "effect": "irreversible", "arguments": {"n": 5}, "defaults": {}, "description": null, "digest": "abababababababababababababababababababababababababababababababab", "action_digest": "", "shown_digest": null, "files_digest": null, "reason": null, "preview": null, "outcome_unknown": false, "returns": null, "changed": false, "is_question": false, "code": null, "actions": {"$t": "tuple", "v": []}, "effects": {}, "script": 0, "because": null, "changes": {"$t": "tuple", "v": []}, "changes_before": 0, "made_before": null, "line": null, "worker": null, "origins": {}, "asked_by": "local", "shaped_by": {"$t": "tuple", "v": []}, "rule": {}, "flow": null, "files": {}, "parent": null, "expires_after": null, "takes_changes": false, "by_policy": false}',NULL);
CREATE TABLE delf_messages (
    conversation INTEGER NOT NULL, seq INTEGER NOT NULL, role TEXT NOT NULL,
    content TEXT NOT NULL, at REAL NOT NULL, task_id TEXT,
    trust TEXT NOT NULL DEFAULT 'outside', PRIMARY KEY (conversation, seq)
);
INSERT INTO "delf_messages" VALUES(1,1,'user','hi',1.0,NULL,'own');
CREATE TABLE delf_notes (
    pos INTEGER PRIMARY KEY AUTOINCREMENT, task INTEGER NOT NULL, at REAL NOT NULL, kind TEXT NOT NULL,
    data TEXT NOT NULL
);
INSERT INTO "delf_notes" VALUES(1,3,9.0,'x','{}');
CREATE TABLE delf_owners (
    owner TEXT PRIMARY KEY, pid INTEGER NOT NULL, birth TEXT, host TEXT NOT NULL,
    place TEXT NOT NULL, heartbeat REAL NOT NULL, lease REAL
);
CREATE TABLE delf_people (name TEXT PRIMARY KEY, data TEXT NOT NULL);
CREATE TABLE delf_removed (task_id TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE delf_schema_version (version INTEGER NOT NULL);
INSERT INTO "delf_schema_version" VALUES(16);
CREATE TABLE delf_sessions (
    digest TEXT PRIMARY KEY, name TEXT NOT NULL, began REAL NOT NULL, until REAL NOT NULL,
    holder TEXT NOT NULL DEFAULT '', shown_key TEXT NOT NULL DEFAULT '',
    way TEXT NOT NULL DEFAULT '', client TEXT NOT NULL DEFAULT '', browser TEXT NOT NULL DEFAULT ''
);
CREATE TABLE delf_tasks (
    id INTEGER PRIMARY KEY AUTOINCREMENT, task_id TEXT NOT NULL UNIQUE, task TEXT NOT NULL, origin TEXT NOT NULL,
    state TEXT NOT NULL, started_at REAL NOT NULL, finished_at REAL, duration_ms REAL,
    cost_usd REAL, error TEXT, owner TEXT, queue TEXT, not_before REAL, limit_key TEXT,
    tries INTEGER, losses INTEGER, folder TEXT
);
INSERT INTO "delf_tasks" VALUES(1,'done','pay done','agent','done',1.0,8.0,NULL,NULL,NULL,NULL,NULL,NULL,'ada:1',NULL,NULL,NULL);
INSERT INTO "delf_tasks" VALUES(2,'bad','pay bad','agent','failed',1.0,8.0,NULL,NULL,'no',NULL,NULL,NULL,'ada:1',NULL,NULL,NULL);
INSERT INTO "delf_tasks" VALUES(3,'waits','pay waits','agent','running',1.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'ada:1',NULL,NULL,NULL);
CREATE INDEX delf_tasks_started ON delf_tasks (started_at, id);
CREATE INDEX delf_tasks_state ON delf_tasks (state, started_at, id);
CREATE INDEX delf_tasks_running ON delf_tasks (owner) WHERE state = 'running';
CREATE INDEX delf_tasks_queued ON delf_tasks (started_at, id) WHERE state = 'queued';
CREATE INDEX delf_events_remembered ON delf_events (task, seq) WHERE type = 'ApprovalDecided' AND data LIKE '%"until_revoked"%';
CREATE INDEX delf_events_inputs ON delf_events (task, seq) WHERE type IN ('TaskQueued', 'TaskStarted') AND data LIKE '%"input_files"%';
CREATE INDEX delf_notes_task ON delf_notes (task, pos);
CREATE INDEX delf_events_requests ON delf_events (task, seq) WHERE type IN ('ApprovalRequested', 'ApprovalDecided', 'ApprovalVoted', 'ApprovalCommented', 'ApprovalAssigned');
CREATE INDEX delf_removed_at ON delf_removed (at);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('delf_tasks',3);
INSERT INTO "sqlite_sequence" VALUES('delf_events',20);
INSERT INTO "sqlite_sequence" VALUES('delf_notes',1);
INSERT INTO "sqlite_sequence" VALUES('delf_conversations',1);
COMMIT;
