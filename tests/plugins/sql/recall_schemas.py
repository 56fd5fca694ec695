"""Schemas and questions that measure which tables a prompt shows.

A table is written ``name(key*, column, other_id>other)``: ``*`` is the primary key and ``>`` refers
to the key of another table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice, product

MUSIC = """
Artist(ArtistId*, Name)
Album(AlbumId*, Title, ArtistId>Artist)
Genre(GenreId*, Name)
MediaType(MediaTypeId*, Name)
Track(TrackId*, Name, AlbumId>Album, MediaTypeId>MediaType, GenreId>Genre, Composer, Milliseconds, Bytes, UnitPrice)
Playlist(PlaylistId*, Name)
PlaylistTrack(PlaylistId>Playlist, TrackId>Track)
Employee(EmployeeId*, LastName, FirstName, Title, ReportsTo>Employee, BirthDate, HireDate, Address, City, State, Country, PostalCode, Phone, Fax, Email)
Customer(CustomerId*, FirstName, LastName, Company, Address, City, State, Country, PostalCode, Phone, Fax, Email, SupportRepId>Employee)
Invoice(InvoiceId*, CustomerId>Customer, InvoiceDate, BillingAddress, BillingCity, BillingState, BillingCountry, BillingPostalCode, Total)
InvoiceLine(InvoiceLineId*, InvoiceId>Invoice, TrackId>Track, UnitPrice, Quantity)
"""
RENTAL = """
actor(actor_id*, first_name, last_name, last_update)
country(country_id*, country, last_update)
city(city_id*, city, country_id>country, last_update)
address(address_id*, address, address2, district, city_id>city, postal_code, phone, last_update)
language(language_id*, name, last_update)
category(category_id*, name, last_update)
film(film_id*, title, description, release_year, language_id>language, rental_duration, rental_rate, length, replacement_cost, rating, special_features, last_update)
film_actor(actor_id>actor, film_id>film, last_update)
film_category(film_id>film, category_id>category, last_update)
film_text(film_id>film, title, description)
store(store_id*, manager_staff_id>staff, address_id>address, last_update)
staff(staff_id*, first_name, last_name, address_id>address, picture, email, store_id>store, active, username, password, last_update)
inventory(inventory_id*, film_id>film, store_id>store, last_update)
client(client_id*, store_id>store, first_name, last_name, email, address_id>address, active, create_date, last_update)
rental(rental_id*, rental_date, inventory_id>inventory, client_id>client, return_date, staff_id>staff, last_update)
payment(payment_id*, client_id>client, staff_id>staff, rental_id>rental, amount, payment_date, last_update)
"""
COMPANY = """
org_departments(dept_no*, dept_name, cost_center, floor)
org_people(person_id*, given_name, family_name, birth_date, hired_on, dept_no>org_departments, boss_id>org_people, email)
org_salaries(person_id>org_people, amount, valid_from, valid_to)
org_positions(position_id*, label, grade)
org_person_positions(person_id>org_people, position_id>org_positions, since)
org_absences(absence_id*, person_id>org_people, kind, starts_on, ends_on, approved_by>org_people)
org_trainings(training_id*, topic, provider, price)
org_training_attendees(training_id>org_trainings, person_id>org_people, passed)
sales_accounts(account_id*, company_name, industry, website, owner_id>org_people, created_at)
sales_contacts(contact_id*, account_id>sales_accounts, full_name, email, phone, job_title)
sales_leads(lead_id*, source, status, score, contact_id>sales_contacts, converted_at)
sales_opportunities(opportunity_id*, account_id>sales_accounts, stage, expected_revenue, closes_on, owner_id>org_people)
sales_quotes(quote_id*, opportunity_id>sales_opportunities, valid_until, discount)
sales_quote_items(quote_item_id*, quote_id>sales_quotes, product_id>stock_products, quantity, price)
sales_orders(order_id*, account_id>sales_accounts, ordered_at, status, currency, shipped_at)
sales_order_items(order_item_id*, order_id>sales_orders, product_id>stock_products, quantity, unit_price, discount)
sales_returns(return_id*, order_item_id>sales_order_items, reason, returned_at, refund)
sales_regions(region_id*, region_name, manager_id>org_people)
sales_targets(target_id*, region_id>sales_regions, quarter, goal)
stock_products(product_id*, sku, title, weight, brand_id>stock_brands, category_id>stock_categories, list_price, discontinued)
stock_brands(brand_id*, brand_name)
stock_categories(category_id*, category_name, parent_id>stock_categories)
stock_warehouses(warehouse_id*, warehouse_name, city, capacity)
stock_levels(product_id>stock_products, warehouse_id>stock_warehouses, on_hand, reorder_point)
stock_movements(movement_id*, product_id>stock_products, from_warehouse>stock_warehouses, to_warehouse>stock_warehouses, quantity, moved_at)
stock_suppliers(supplier_id*, supplier_name, country, rating, lead_time_days)
stock_supplier_products(supplier_id>stock_suppliers, product_id>stock_products, purchase_price)
stock_purchase_orders(purchase_order_id*, supplier_id>stock_suppliers, placed_at, due_on, state)
stock_purchase_lines(purchase_order_id>stock_purchase_orders, product_id>stock_products, quantity, cost)
ship_carriers(carrier_id*, carrier_name, tracking_url)
ship_shipments(shipment_id*, order_id>sales_orders, carrier_id>ship_carriers, dispatched_at, delivered_at, tracking_code)
ship_parcels(parcel_id*, shipment_id>ship_shipments, weight, width, height)
fin_ledgers(ledger_id*, ledger_name, currency)
fin_journal_entries(entry_id*, ledger_id>fin_ledgers, booked_on, memo)
fin_journal_lines(line_id*, entry_id>fin_journal_entries, account_code, debit, credit)
fin_bills(bill_id*, supplier_id>stock_suppliers, bill_number, due_date, gross, paid_at)
fin_receivables(receivable_id*, account_id>sales_accounts, order_id>sales_orders, invoice_number, due_date, gross, paid_at)
fin_dunning(dunning_id*, receivable_id>fin_receivables, level, sent_at)
fin_budgets(budget_id*, dept_no>org_departments, fiscal_year, planned, spent)
fin_expenses(expense_id*, person_id>org_people, category, cost, incurred_on, reimbursed)
help_tickets(ticket_id*, subject, priority, state, contact_id>sales_contacts, assignee_id>org_people, opened_at, closed_at)
help_comments(comment_id*, ticket_id>help_tickets, author_id>org_people, body, posted_at)
help_tags(tag_id*, tag)
help_ticket_tags(ticket_id>help_tickets, tag_id>help_tags)
help_surveys(survey_id*, ticket_id>help_tickets, satisfaction, remark)
help_articles(article_id*, headline, body, views, author_id>org_people)
proj_projects(project_id*, project_name, account_id>sales_accounts, starts_on, deadline, lead_id>org_people)
proj_tasks(task_id*, project_id>proj_projects, summary, estimate_hours, done)
proj_assignments(task_id>proj_tasks, person_id>org_people)
proj_time_entries(time_entry_id*, task_id>proj_tasks, person_id>org_people, hours, worked_on, billable)
proj_milestones(milestone_id*, project_id>proj_projects, milestone_name, reached_on)
mkt_campaigns(campaign_id*, campaign_name, channel, budget, launched_on)
mkt_campaign_members(campaign_id>mkt_campaigns, contact_id>sales_contacts, responded)
mkt_newsletters(newsletter_id*, subject_line, sent_at)
mkt_newsletter_opens(newsletter_id>mkt_newsletters, contact_id>sales_contacts, opened_at)
mkt_web_sessions(session_id*, visitor_id, landing_page, referrer, duration_seconds, started_at)
fleet_vehicles(vehicle_id*, plate, model, mileage, driver_id>org_people)
fleet_services(service_id*, vehicle_id>fleet_vehicles, garage, cost, serviced_on)
fleet_fuel_fills(fill_id*, vehicle_id>fleet_vehicles, litres, cost, filled_on)
fleet_accidents(accident_id*, vehicle_id>fleet_vehicles, happened_on, damage)
"""
SCHOOL = """
students(student_id*, fname, lname, age, sex, major, advisor_id>faculty, dorm_id>dorms)
faculty(faculty_id*, fname, lname, rank, building)
courses(course_id*, course_title, credits, taught_by>faculty)
enrolled_in(student_id>students, course_id>courses, grade)
grade_conversion(letter*, gradepoint)
dorms(dorm_id*, dorm_name, student_capacity, gender)
dorm_amenities(amenity_id*, amenity_name)
has_amenity(dorm_id>dorms, amenity_id>dorm_amenities)
clubs(club_id*, club_name, club_location)
club_members(club_id>clubs, student_id>students, position)
"""
FLIGHTS = """
airlines(airline_id*, airline_name, abbreviation, airline_country)
airports(airport_code*, airport_name, airport_city)
flights(flight_no*, airline_id>airlines, source_airport>airports, dest_airport>airports, departs_at, distance)
aircraft(aircraft_id*, aircraft_model, flying_range)
pilots(pilot_id*, pilot_name, salary_grade)
pilot_certificates(pilot_id>pilots, aircraft_id>aircraft)
passengers(passenger_id*, passenger_name, passport)
bookings(booking_id*, passenger_id>passengers, flight_no>flights, seat, fare)
"""
HOSPITAL = """
physician(physician_id*, physician_name, specialty, ssn)
patient(ssn*, patient_name, insurance_id, primary_physician>physician)
nurse(nurse_id*, nurse_name, registered)
appointment(appointment_id*, patient_ssn>patient, prep_nurse>nurse, physician_id>physician, starts_at, examination_room)
medication(code*, medication_name, brand)
prescribes(physician_id>physician, patient_ssn>patient, medication_code>medication, prescribed_on, dose)
medical_procedure(procedure_code*, procedure_name, procedure_cost)
trained_in(physician_id>physician, procedure_code>medical_procedure, certification_date)
stay(stay_id*, patient_ssn>patient, room_no>ward_room, stay_start, stay_end)
ward_room(room_no*, room_type, unavailable)
"""
CONCERTS = """
stadium(stadium_id*, location, stadium_name, capacity, highest, lowest, average)
singer(singer_id*, singer_name, nationality, song_name, song_release_year, age)
concert(concert_id*, concert_name, theme, stadium_id>stadium, concert_year)
singer_in_concert(concert_id>concert, singer_id>singer)
"""
OWN = (MUSIC, RENTAL, COMPANY, SCHOOL, FLIGHTS, HOSPITAL, CONCERTS)

_THINGS = """
boat bridge camera castle cattle church circuit comet crop dam desk device dog drone election
elevator engine exhibit factory farm ferry festival forest gallery garden glacier harbor helmet
horse island kitchen laboratory lamp lawsuit lighthouse lottery machine market match mine
mission monument mosque museum newspaper oven painting park perfume phone pipeline planet pool
port prison pump quarry race radio railway recipe referee reservoir restaurant river robot
satellite sensor shop spring statue street submarine tablet tea telescope theme tournament
tower trail tram tree truck tunnel turbine university valley vineyard wheel wind wrestler yacht
zoo coach opera
"""
_PARTS = (
    "{0}(id*, name, built_year, status, opened_on)",
    "{0}_type(type_id*, type_name, description)",
    "{0}_visit(visit_id*, {0}_id>{0}, visitor_name, visited_on, rating)",
    "{0}_inspection(inspection_id*, {0}_id>{0}, inspector, result, inspected_on)",
    "{0}_document(document_id*, {0}_id>{0}, file_name, author, created_at)",
    "{0}_event(event_id*, {0}_id>{0}, event_name, start_date, end_date)",
    "{0}_staff(staff_no*, {0}_id>{0}, full_name, role, wage)",
    "{0}_price_history({0}_id>{0}, price, valid_from, valid_until)",
)
HUGE = 876

_TABLE = re.compile(r"(\w+)\((.*)\)")


def lines_of(*schemas: str) -> list[str]:
    """Return all tables of schemas, one per line."""
    return [line for schema in schemas for line in schema.strip().splitlines()]


def huge() -> list[str]:
    """Return all schemas, with other tables up to :data:`HUGE` in total."""
    own = lines_of(*OWN)
    others = (part.format(thing) for thing, part in product(_THINGS.split(), _PARTS))
    return [*own, *islice(others, HUGE - len(own))]


def wide(count: int, columns: int) -> list[str]:
    """Return tables like those of an import, with more columns than a person reads."""
    many = ", ".join(f"attribute_{number:03}_code" for number in range(columns))
    return [f"import_{number}(row_id*, {many})" for number in range(count)]


def ddl(lines: Iterable[str]) -> str:
    """Return the statements that create the tables."""
    found = [match.groups() for match in map(_TABLE.fullmatch, lines) if match]
    keys = {
        table: next((c.strip("* ") for c in columns.split(",") if c.endswith("*")), "")
        for table, columns in found
    }
    return "\n".join(
        f"CREATE TABLE {table} ({', '.join(_columns(columns, keys))});" for table, columns in found
    )


def _columns(text: str, keys: dict[str, str]) -> Iterator[str]:
    for column in text.split(", "):
        name, _, other = column.partition(">")
        if name.endswith("*"):
            yield f"{name[:-1]} INTEGER PRIMARY KEY"
        elif other:
            yield f"{name} INTEGER REFERENCES {other} ({keys[other]})"
        else:
            yield f"{name} TEXT"


QUESTIONS = (
    # music
    ("Which artists have the most albums?", "Artist.Name Album.ArtistId"),
    ("List the tracks on the album 'Let There Be Rock'", "Track.Name Album.Title"),
    ("Total revenue per genre", "Genre.Name Track.GenreId InvoiceLine.UnitPrice"),
    ("How many tracks are in each playlist?", "Playlist.Name PlaylistTrack.TrackId"),
    ("Which support employee looks after the most customers?", "Employee.LastName Customer.SupportRepId"),
    ("What did customers from Brazil spend on invoices?", "Customer.Country Invoice.Total"),
    ("Longest track of each media type", "Track.Milliseconds MediaType.Name"),
    ("Which artist sold the most tracks in 2012?", "Artist.Name Album.Title Track.AlbumId InvoiceLine.Quantity Invoice.InvoiceDate"),
    ("Names of playlists that hold jazz tracks", "Playlist.Name PlaylistTrack.PlaylistId Track.GenreId Genre.Name"),
    ("Who composed the tracks that customer Luis Goncalves bought?", "Track.Composer InvoiceLine.TrackId Invoice.CustomerId Customer.LastName"),
    # rental
    ("Which films were rented most often?", "film.title inventory.film_id rental.inventory_id"),
    ("List the actors of the film 'ACADEMY DINOSAUR'", "actor.last_name film_actor.film_id film.title"),
    ("Revenue from payments per film category", "payment.amount rental.rental_id inventory.film_id film_category.category_id category.name"),
    ("How many clients live in each country?", "client.address_id address.city_id city.country_id country.country"),
    ("Which staff member took the highest payments?", "staff.last_name payment.amount"),
    ("Films that were never returned", "film.title inventory.inventory_id rental.return_date"),
    ("In which languages are the films?", "film.language_id language.name"),
    ("Average rental rate of films by rating", "film.rental_rate film.rating"),
    ("Inventory count of each store with its city", "inventory.store_id store.address_id address.city_id city.city"),
    ("Which actors play in horror category films?", "actor.first_name film_actor.actor_id film_category.film_id category.name"),
    # company
    ("Average salary per department", "org_salaries.amount org_people.dept_no org_departments.dept_name"),
    ("Who has been absent for more than ten days?", "org_absences.starts_on org_people.family_name"),
    ("Which people passed the training on safety?", "org_trainings.topic org_training_attendees.passed org_people.given_name"),
    ("Open opportunities by expected revenue for each account", "sales_opportunities.expected_revenue sales_accounts.company_name"),
    ("Which products were returned most and why?", "sales_returns.reason sales_order_items.product_id stock_products.title"),
    ("Orders that were shipped but not delivered", "sales_orders.shipped_at ship_shipments.delivered_at"),
    ("Which carriers deliver the heaviest parcels?", "ship_carriers.carrier_name ship_shipments.carrier_id ship_parcels.weight"),
    ("Products below their reorder point in any warehouse", "stock_products.title stock_levels.reorder_point stock_warehouses.warehouse_name"),
    ("Suppliers with the lowest purchase price for each product", "stock_suppliers.supplier_name stock_supplier_products.purchase_price stock_products.sku"),
    ("Overdue receivables with their dunning level", "fin_receivables.due_date fin_dunning.level"),
    ("Budget left of each department this fiscal year", "fin_budgets.planned fin_budgets.spent org_departments.dept_name"),
    ("Unreimbursed expenses by person", "fin_expenses.reimbursed org_people.family_name"),
    ("Tickets with tag 'refund' still open", "help_tickets.state help_ticket_tags.ticket_id help_tags.tag"),
    ("Average satisfaction in surveys by assignee of the ticket", "help_surveys.satisfaction help_tickets.assignee_id org_people.family_name"),
    ("Billable hours per project", "proj_time_entries.billable proj_tasks.project_id proj_projects.project_name"),
    ("Which contacts responded to the spring campaign?", "mkt_campaigns.campaign_name mkt_campaign_members.responded sales_contacts.full_name"),
    ("Who opened the newsletter of May?", "mkt_newsletters.subject_line mkt_newsletter_opens.opened_at sales_contacts.full_name"),
    ("Fuel cost per vehicle and driver", "fleet_fuel_fills.cost fleet_vehicles.driver_id org_people.family_name"),
    ("Debits and credits of every ledger in March", "fin_journal_lines.debit fin_journal_entries.booked_on fin_ledgers.ledger_name"),
    ("Sales targets by region with the name of its manager", "sales_targets.goal sales_regions.manager_id org_people.given_name"),
    ("Quotes with a discount over 20 % and their items", "sales_quotes.discount sales_quote_items.price"),
    ("Bills that we have not paid to suppliers in Italy", "fin_bills.paid_at stock_suppliers.country"),
    ("Close ticket 4711 with a comment by Anna", "help_tickets.closed_at help_comments.body org_people.given_name"),
    ("Move 20 pieces of SKU A-1 from Hamburg to Berlin", "stock_movements.quantity stock_products.sku stock_warehouses.city"),
    # school
    ("Grade point average of each student", "students.lname enrolled_in.grade grade_conversion.gradepoint"),
    ("Which courses does professor Smith of the faculty teach?", "courses.course_title faculty.lname"),
    ("Dorms that have air conditioning as amenity", "dorms.dorm_name has_amenity.dorm_id dorm_amenities.amenity_name"),
    ("Students who are members of the chess club", "students.fname club_members.student_id clubs.club_name"),
    ("How many credits is each student enrolled in?", "students.student_id enrolled_in.course_id courses.credits"),
    # flights
    ("Which airlines fly to Aberdeen airport?", "airlines.airline_name flights.dest_airport airports.airport_name"),
    ("Pilots certified for the Boeing 747", "pilots.pilot_name pilot_certificates.aircraft_id aircraft.aircraft_model"),
    ("Passengers on flight 99 with their fares", "passengers.passenger_name bookings.fare flights.flight_no"),
    ("Total distance flown per airline", "flights.distance airlines.airline_name"),
    # hospital
    ("Which physicians prescribed Thesisin to their patients?", "physician.physician_name prescribes.medication_code medication.medication_name patient.patient_name"),
    ("Patients who stayed in a single room", "patient.patient_name stay.room_no ward_room.room_type"),
    ("Nurses that prepared appointments in room A", "nurse.nurse_name appointment.examination_room"),
    ("Physicians trained in procedures that cost more than 5000", "physician.physician_name trained_in.procedure_code medical_procedure.procedure_cost"),
    # concerts
    ("Names of singers who sang in a concert in 2014", "singer.singer_name singer_in_concert.singer_id concert.concert_year"),
    ("Stadium with the most concerts", "stadium.stadium_name concert.stadium_id"),
    ("Which stadiums with a capacity over 10000 had no concerts?", "stadium.capacity concert.stadium_id"),
)  # fmt: skip
"""Each with the columns that its answer needs."""


def is_shown(prompt: str, needed: str) -> bool:
    """Return True if a prompt shows all needed tables with the columns."""
    shown = dict(
        line.removeprefix("view ").split("(", 1) for line in prompt.splitlines() if "(" in line
    )
    tables = {name: set(re.findall(r"\w+", columns)) for name, columns in shown.items()}
    return all(
        column in tables.get(table, set())
        for table, column in (item.split(".") for item in needed.split())
    )
