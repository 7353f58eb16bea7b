"""Five hundred tools as a company's servers would offer them, and fifty questions people ask of them.

The tools are the product of two tables, so every one of them has dozens of look-alikes: the same verb on
forty-nine other things, and nine other verbs on the same thing.  The questions are in people's words, not
in the tools'; which tool each one needs was written down before any index was tried on them.
"""

import json
from typing import Any

from bridle.tools import RawTool

# server, prefix of its tools, and what it has: thing, plural, what it is, and what names one
SERVERS: tuple[tuple[str, str, tuple[tuple[str, str, str, str], ...]], ...] = (
    (
        "code forge",
        "mcp__forge__",
        (
            ("repository", "repositories", "a Git repository with its settings", "owner and name"),
            ("branch", "branches", "a branch of a Git repository", "branch name"),
            ("pull_request", "pull requests", "a proposed change under review", "pull request number"),
            ("release", "releases", "a tagged, published version of the software", "tag"),
            ("pipeline", "pipelines", "a CI run with its jobs and build logs", "run id"),
        ),
    ),
    (
        "issue tracker",
        "mcp__tracker__",
        (
            ("ticket", "tickets", "a bug report or task with status and assignee", "ticket key"),
            ("sprint", "sprints", "a time-boxed iteration of a team's work", "sprint id"),
            ("epic", "epics", "a large body of work made of many tickets", "epic key"),
            ("board", "boards", "a kanban or scrum board with columns", "board id"),
            ("comment", "comments", "a remark somebody left on a ticket", "comment id"),
        ),
    ),
    (
        "mailbox",
        "mcp__mail__",
        (
            ("email", "emails", "an email message with subject, body and recipients", "message id"),
            ("draft", "drafts", "an email that is written and not sent yet", "draft id"),
            ("folder", "folders", "a mailbox folder that holds messages", "folder path"),
            ("filter", "filters", "a rule that sorts incoming mail", "filter id"),
            ("signature", "signatures", "the text below every outgoing email", "signature name"),
        ),
    ),
    (
        "calendar",
        "mcp__calendar__",
        (
            ("event", "events", "a meeting or appointment with time, place and attendees", "event id"),
            ("room", "rooms", "a meeting room that can be booked", "room name"),
            ("reminder", "reminders", "a notification at a given time", "reminder id"),
            ("holiday", "holidays", "a public holiday or day off in a region", "date"),
            ("availability", "availabilities", "the hours in which a person is free or busy", "person"),
        ),
    ),
    (
        "customer relations",
        "crm__",
        (
            ("contact", "contacts", "a person at a customer, with phone and address", "contact id"),
            ("company", "companies", "an organisation that buys or may buy from us", "company id"),
            ("deal", "deals", "a sales opportunity with stage and expected revenue", "deal id"),
            ("campaign", "campaigns", "a marketing campaign with audience and results", "campaign id"),
            ("lead", "leads", "a prospect nobody has talked to yet", "lead id"),
        ),
    ),
    (
        "billing",
        "billing__",
        (
            ("invoice", "invoices", "a bill sent to a customer, with line items and due date", "invoice no"),
            ("payment", "payments", "money received from a customer by card or transfer", "payment id"),
            ("subscription", "subscriptions", "a recurring plan a customer pays for", "subscription id"),
            ("refund", "refunds", "money paid back to a customer", "refund id"),
            ("coupon", "coupons", "a discount code with percentage and expiry", "coupon code"),
        ),
    ),
    (
        "warehouse",
        "warehouse__",
        (
            ("product", "products", "an article for sale with its price and SKU", "SKU"),
            ("order", "orders", "what a customer ordered and where it goes", "order number"),
            ("shipment", "shipments", "a parcel on its way, with carrier and tracking number", "tracking no"),
            ("supplier", "suppliers", "a vendor from whom goods are purchased", "supplier id"),
            ("stock_level", "stock levels", "how many pieces of an article are on hand", "SKU"),
        ),
    ),
    (
        "people",
        "hr__",
        (
            ("employee", "employees", "a member of staff with role, manager and start date", "employee id"),
            ("leave_request", "leave requests", "a request for vacation or sick leave", "request id"),
            ("payslip", "payslips", "the monthly statement of salary and deductions", "employee and month"),
            ("candidate", "candidates", "an applicant for a job, with CV and interviews", "candidate id"),
            ("expense_report", "expense reports", "travel costs and receipts to be reimbursed", "report id"),
        ),
    ),
    (
        "cloud",
        "mcp__cloud__",
        (
            ("server", "servers", "a virtual machine with CPU, memory and address", "server id"),
            ("bucket", "buckets", "an object storage bucket for files and backups", "bucket name"),
            ("database", "databases", "a managed SQL database instance", "database id"),
            ("dns_record", "DNS records", "a domain name entry such as A, CNAME or MX", "record id"),
            ("secret", "secrets", "a stored credential, key or password", "secret name"),
        ),
    ),
    (
        "workspace",
        "",
        (
            ("document", "documents", "a text document people write together", "document id"),
            ("spreadsheet", "spreadsheets", "a table of cells with formulas and charts", "spreadsheet id"),
            ("chat_message", "chat messages", "a message in a team channel", "message id"),
            ("channel", "channels", "a team chat channel with its members", "channel name"),
            ("survey", "surveys", "a questionnaire with its answers", "survey id"),
        ),
    ),
)

# verb, what it does to one ({a}) or many ({many}) of them, and further parameters
VERBS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("list", "List all {many}, newest first, page by page.", (("page", "Page of the list"),)),
    ("get", "Fetch the details of one {one} by its {key}.", ()),
    ("create", "Create a new {one} and return it.", (("fields", "Values of the new {one}"),)),
    ("update", "Change fields of an existing {one}.", (("fields", "Values to set"),)),
    ("delete", "Permanently delete one {one}. This cannot be undone.", ()),
    ("search", "Search {many} by words, dates and other criteria.", (("query", "Words to look for"),)),
    ("archive", "Put one {one} away without deleting it; it can be restored.", ()),
    ("share", "Give another person access to one {one}.", (("person", "Who gets access"),)),
    ("export", "Export {many} to a CSV or PDF file for download.", (("format", "csv or pdf"),)),
    ("watch", "Subscribe to changes of one {one} and be notified.", (("until", "When to stop"),)),
)

QUESTIONS: tuple[tuple[str, str], ...] = (
    ("Please remove the branch feature/login, we have merged it.", "mcp__forge__delete_branch"),
    ("Which repositories do we have?", "mcp__forge__list_repository"),
    ("Open a pull request from dev to main", "mcp__forge__create_pull_request"),
    ("Find the pull requests that mention the memory leak", "mcp__forge__search_pull_request"),
    ("Tell me what went wrong in CI run 8812", "mcp__forge__get_pipeline"),
    ("Tag and publish version 2.4.0 of our software", "mcp__forge__create_release"),
    ("File a bug: the login page shows a blank screen", "mcp__tracker__create_ticket"),
    ("Set the status of ticket APP-17 to done", "mcp__tracker__update_ticket"),
    ("Show me every sprint of the mobile team", "mcp__tracker__list_sprint"),
    ("Erase the remark I left on APP-9", "mcp__tracker__delete_comment"),
    ("Let me know whenever epic PAY-1 changes", "mcp__tracker__watch_epic"),
    ("Give Anna access to the kanban board", "mcp__tracker__share_board"),
    ("Look for emails from the bank about the loan", "mcp__mail__search_email"),
    (
        "I want incoming newsletters to be sorted away automatically, set up a rule",
        "mcp__mail__create_filter",
    ),
    ("Throw away the unsent draft to Peter", "mcp__mail__delete_draft"),
    ("Change the text under my outgoing mails", "mcp__mail__update_signature"),
    ("What folders are in my mailbox?", "mcp__mail__list_folder"),
    ("Schedule a meeting with Jo on Friday at ten", "mcp__calendar__create_event"),
    ("Which meeting rooms are there?", "mcp__calendar__list_room"),
    ("Remind me tomorrow at nine to call the dentist", "mcp__calendar__create_reminder"),
    ("When is Maria free this week?", "mcp__calendar__get_availability"),
    ("Move the appointment with the auditors to Monday", "mcp__calendar__update_event"),
    ("Which public holidays are there in Bavaria?", "mcp__calendar__list_holiday"),
    ("Add a new contact, Sam Lee, phone 555-0100", "crm__create_contact"),
    ("What is the phone number of the contact Lee?", "crm__get_contact"),
    ("Find companies in Lyon that may buy from us", "crm__search_company"),
    ("Download all sales opportunities as CSV", "crm__export_deal"),
    ("How did marketing campaign 12 do? Fetch its results", "crm__get_campaign"),
    ("Set the deal with Acme to the stage 'won'", "crm__update_deal"),
    ("Send the customer a bill for the consulting hours", "billing__create_invoice"),
    ("Pay back 20 euros to the customer", "billing__create_refund"),
    ("Make a discount code for 15 percent off", "billing__create_coupon"),
    ("List the payments we received by card", "billing__list_payment"),
    ("Search the invoices that were due in March", "billing__search_invoice"),
    ("Switch the recurring plan of customer 77 to yearly", "billing__update_subscription"),
    ("Where is the parcel with tracking number 1Z99?", "warehouse__get_shipment"),
    ("How many pieces of article 4411 are on hand?", "warehouse__get_stock_level"),
    ("Raise the price of the product with SKU A-9", "warehouse__update_product"),
    ("Get the vendors we purchase goods from, all of them", "warehouse__list_supplier"),
    ("Show order 5521 and where it goes", "warehouse__get_order"),
    ("Who is the manager of employee 81?", "hr__get_employee"),
    ("I would like to apply for vacation in August", "hr__create_leave_request"),
    ("Get me the salary statement of May as PDF", "hr__export_payslip"),
    ("Look for applicants with Rust on their CV", "hr__search_candidate"),
    ("Submit my travel costs for reimbursement", "hr__create_expense_report"),
    ("Start a virtual machine with 8 GB of memory", "mcp__cloud__create_server"),
    ("Point www.example.org to another address: edit the CNAME entry", "mcp__cloud__update_dns_record"),
    ("Read the stored password of the mail relay", "mcp__cloud__get_secret"),
    ("Create a table with a formula and a chart", "create_spreadsheet"),
    ("Write to the team channel that lunch is ready: post a message", "create_chat_message"),
)


def _run(arguments: dict[str, Any]) -> str:
    return f"done with {json.dumps(arguments, sort_keys=True)}"


def five_hundred() -> list[RawTool]:
    made = []
    for server, prefix, things in SERVERS:
        for thing, many, what, key in things:
            one = thing.replace("_", " ")
            for verb, does, more in VERBS:
                properties: dict[str, Any] = {}
                if verb in ("get", "update", "delete", "archive", "share", "watch"):
                    properties["id"] = {"type": "string", "description": f"The {key}"}
                for name, about in more:
                    properties[name] = {"type": "string", "description": about.format(one=one)}
                schema = {"type": "object", "properties": properties, "required": list(properties)}
                words = does.format(one=one, many=many, key=key)
                description = f"{words} A {one} is {what}. Part of the {server}."
                made.append(RawTool(f"{prefix}{verb}_{thing}", description, schema, _run))
    return made
